//! Numbers in records.

use super::RecordProblem;

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference of `value` from `previous`, which becomes `value`.
pub(super) fn put_delta(out: &mut Vec<u8>, previous: &mut u64, value: u64) {
    let difference = value.wrapping_sub(*previous) as i64;
    put_varint(out, ((difference << 1) ^ (difference >> 63)) as u64);
    *previous = value;
}

/// Takes a payload apart.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'p> {
    payload: &'p [u8],
    pub(super) at: usize,
}

impl<'p> Cursor<'p> {
    pub(super) fn new(payload: &'p [u8], at: usize) -> Self {
        Self { payload, at }
    }

    pub(super) fn byte(&mut self) -> Result<u8, RecordProblem> {
        let byte = *self.payload.get(self.at).ok_or(RecordProblem::Short)?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'p [u8], RecordProblem> {
        let left = self.payload.get(self.at..).ok_or(RecordProblem::Short)?;
        let taken = left.get(..count).ok_or(RecordProblem::Short)?;
        self.at += count;
        Ok(taken)
    }

    pub(super) fn varint(&mut self) -> Result<u64, RecordProblem> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(RecordProblem::Number);
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                let shortest = byte != 0 || shift == 0;
                return if shortest { Ok(value) } else { Err(RecordProblem::Number) };
            }
        }
        Err(RecordProblem::Number)
    }

    pub(super) fn varint_u32(&mut self) -> Result<u32, RecordProblem> {
        u32::try_from(self.varint()?).map_err(|_| RecordProblem::Number)
    }

    pub(super) fn delta(&mut self, previous: &mut u64) -> Result<u64, RecordProblem> {
        let coded = self.varint()?;
        let difference = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        *previous = previous.wrapping_add_signed(difference);
        Ok(*previous)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_come_back(values in proptest::collection::vec(any::<u64>(), 1..20), bits in 0u32..64) {
            let values: Vec<u64> = values.iter().map(|value| value >> bits).collect();
            let mut bytes = Vec::new();
            let mut previous = 0;
            for &value in &values {
                put_varint(&mut bytes, value);
                put_delta(&mut bytes, &mut previous, value);
            }
            let mut cursor = Cursor::new(&bytes, 0);
            let mut previous = 0;
            for &value in &values {
                prop_assert_eq!(cursor.varint(), Ok(value));
                prop_assert_eq!(cursor.delta(&mut previous), Ok(value));
            }
            prop_assert_eq!(cursor.byte(), Err(RecordProblem::Short));
        }
    }

    #[test]
    fn numbers_that_are_too_long_or_too_large_are_refused() {
        let refused = |bytes: &[u8]| Cursor::new(bytes, 0).varint();
        assert_eq!(refused(&[0x80, 0x00]), Err(RecordProblem::Number));
        assert_eq!(refused(&[0xFF; 11]), Err(RecordProblem::Number));
        let mut most = [0xFF; 10];
        most[9] = 1;
        assert_eq!(refused(&most), Ok(u64::MAX));
        most[9] = 2;
        assert_eq!(refused(&most), Err(RecordProblem::Number));
        assert_eq!(refused(&[0x80]), Err(RecordProblem::Short));
    }
}
