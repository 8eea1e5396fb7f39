//! Axes: where a value lies, and where the ticks are.

/// How values are laid out along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from zero.
    Linear,
    /// By powers of two; values are positive.
    Log2,
    /// By powers of ten; values are positive.
    Log10,
    /// Not numbers: value 0 is the first of these, 1 the second.
    Categories(Vec<String>),
}

/// One axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it measures, with the unit.
    pub label: String,
    /// How values lie along it.
    pub scale: Scale,
}

impl Axis {
    /// An axis with this scale.
    pub fn new(label: &str, scale: Scale) -> Self {
        Self { label: label.to_owned(), scale }
    }

    /// A linear axis.
    pub fn linear(label: &str) -> Self {
        Self::new(label, Scale::Linear)
    }

    /// An axis by powers of two.
    pub fn log2(label: &str) -> Self {
        Self::new(label, Scale::Log2)
    }

    /// An axis by powers of ten.
    pub fn log10(label: &str) -> Self {
        Self::new(label, Scale::Log10)
    }

    /// An axis of named places: for bars.
    pub fn categories<S: ToString>(label: &str, names: impl IntoIterator<Item = S>) -> Self {
        Self::new(
            label,
            Scale::Categories(names.into_iter().map(|name| name.to_string()).collect()),
        )
    }
}

/// An axis that knows how far it reaches. Places run from 0 at its start to 1 at its end.
#[derive(Debug)]
pub(super) struct Extent<'a> {
    axis: &'a Axis,
    /// In units of the scale: values, or logarithms of them.
    low: f64,
    high: f64,
}

/// Whether `value` has a place on the axis.
pub(super) fn has_place(axis: &Axis, value: f64) -> bool {
    value.is_finite()
        && match &axis.scale {
            Scale::Linear => true,
            Scale::Log2 | Scale::Log10 => value > 0.0,
            Scale::Categories(names) => {
                value >= 0.0 && value.fract() == 0.0 && (value as usize) < names.len()
            }
        }
}

/// What to call the place of `value`.
pub(super) fn place_name(axis: &Axis, value: f64) -> String {
    match &axis.scale {
        Scale::Categories(names) => names.get(value as usize).cloned().unwrap_or_default(),
        _ => value.to_string(),
    }
}

fn unit(scale: &Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear | Scale::Categories(_) => value,
        Scale::Log2 => value.log2(),
        Scale::Log10 => value.log10(),
    }
}

/// The next larger of 1, 2, 5, 10, … times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= rough);
    factor.unwrap_or(10.0) * power
}

/// Ticks wanted on a linear axis.
const LINEAR_TICKS: f64 = 6.0;

impl<'a> Extent<'a> {
    /// Reaches over all `values`, each of which has a place. Linear axes start at zero, so that
    /// lengths can be compared.
    pub(super) fn over(axis: &'a Axis, values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) = values
            .map(|value| unit(&axis.scale, value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), at| {
                (low.min(at), high.max(at))
            });
        match &axis.scale {
            Scale::Linear => {
                (low, high) = (low.min(0.0), high.max(0.0));
                if low == high {
                    high = low + 1.0;
                }
                let step = round_step((high - low) / LINEAR_TICKS);
                (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
            }
            Scale::Log2 | Scale::Log10 => {
                (low, high) = (low.floor(), high.ceil());
                if low == high {
                    high = low + 1.0;
                }
            }
            Scale::Categories(names) => (low, high) = (-0.5, names.len() as f64 - 0.5),
        }
        Self { axis, low, high }
    }

    /// The place of a value.
    pub(super) fn place(&self, value: f64) -> f64 {
        (unit(&self.axis.scale, value) - self.low) / (self.high - self.low)
    }

    /// Where bars start.
    pub(super) fn base(&self) -> f64 {
        if self.axis.scale == Scale::Linear { self.place(0.0) } else { 0.0 }
    }

    /// The share of the axis that one category takes.
    pub(super) fn category_share(&self) -> f64 {
        1.0 / (self.high - self.low)
    }

    /// Places and names of the ticks.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let values: Vec<f64> = match &self.axis.scale {
            Scale::Categories(names) => {
                let names = names.iter().enumerate();
                return names.map(|(at, name)| (self.place(at as f64), name.clone())).collect();
            }
            Scale::Linear => {
                let step = round_step((self.high - self.low) / LINEAR_TICKS);
                let count = ((self.high - self.low) / step).round() as usize;
                (0..=count).map(|index| self.low + index as f64 * step).collect()
            }
            Scale::Log2 => {
                (self.low as i32..=self.high as i32).map(|exponent| 2f64.powi(exponent)).collect()
            }
            Scale::Log10 => {
                let between: &[f64] =
                    if self.high - self.low <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                (self.low as i32..=self.high as i32)
                    .flat_map(|exponent| {
                        between.iter().map(move |factor| factor * 10f64.powi(exponent))
                    })
                    .filter(|value| value.log10() <= self.high + 1e-9)
                    .collect()
            }
        };
        values.into_iter().map(|value| (self.place(value), tick_name(value))).collect()
    }
}

/// A number as short as a tick needs it: 0.05, 250, 40 k, 1.5 M.
fn tick_name(value: f64) -> String {
    let (divisor, suffix) = match value.abs() {
        size if size >= 1e9 => (1e9, " G"),
        size if size >= 1e6 => (1e6, " M"),
        size if size >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let text = format!("{:.4}", value / divisor);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(axis: &Axis, values: &[f64]) -> Vec<String> {
        let extent = Extent::over(axis, values.iter().copied());
        extent.ticks().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn linear_ticks_are_round_and_start_at_zero() {
        assert_eq!(
            names(&Axis::linear("y"), &[120_000.0, 290_000.0]),
            ["0", "50 k", "100 k", "150 k", "200 k", "250 k", "300 k"]
        );
    }

    #[test]
    fn ticks_of_small_values_keep_their_digits() {
        assert_eq!(
            names(&Axis::linear("y"), &[0.1, 0.25]),
            ["0", "0.05", "0.1", "0.15", "0.2", "0.25"]
        );
    }

    #[test]
    fn binary_ticks_are_powers_of_two() {
        assert_eq!(names(&Axis::log2("x"), &[1.0, 28.0]), ["1", "2", "4", "8", "16", "32"]);
    }

    #[test]
    fn decimal_ticks_are_decades_or_finer_where_there_are_few() {
        assert_eq!(names(&Axis::log10("x"), &[1.0, 100_000.0]).len(), 6);
        assert_eq!(names(&Axis::log10("x"), &[120.0, 900.0]), ["100", "200", "500", "1000"]);
    }

    #[test]
    fn ends_of_the_axis_are_at_zero_and_one() {
        let axis = Axis::log2("x");
        let extent = Extent::over(&axis, [1.0, 256.0].into_iter());
        assert_eq!((extent.place(1.0), extent.place(16.0), extent.place(256.0)), (0.0, 0.5, 1.0));
    }

    #[test]
    fn a_single_value_has_an_axis_around_it() {
        for axis in [Axis::linear("x"), Axis::log2("x"), Axis::log10("x")] {
            let extent = Extent::over(&axis, [4.0].into_iter());
            assert!((0.0..=1.0).contains(&extent.place(4.0)), "{axis:?}");
            assert!(extent.ticks().len() >= 2, "{axis:?}");
        }
    }

    #[test]
    fn categories_stand_in_the_middle_of_their_share() {
        let axis = Axis::categories("x", ["one", "two"]);
        let extent = Extent::over(&axis, [0.0].into_iter());
        assert_eq!(extent.ticks(), [(0.25, "one".to_owned()), (0.75, "two".to_owned())]);
        assert_eq!(extent.category_share(), 0.5);
    }
}
