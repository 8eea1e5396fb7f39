//! Cutting the power wherever it may be cut in what was traced.

use std::sync::Arc;

use lapis_device::{
    Config, CrashPoints, Event, ImageBudget, Marker, Modelled, PowerFailDomain, Trace,
};
use lapis_pmem::{Pool, Region};

/// Hands a pool on each image to `survives`, with the numbers that had been marked as ended, until that
/// is false. How many images there were, if it never was.
pub fn power_cuts(
    trace: &Trace,
    base: &[u8],
    budget: ImageBudget,
    mut survives: impl FnMut(&[u32], &Arc<Pool<Modelled>>) -> bool,
) -> Option<u64> {
    let mut region = Region::anonymous(base.len(), base.len()).unwrap();
    // SAFETY: freshly mapped, that long, and nobody else uses it.
    unsafe { region.base().copy_from_nonoverlapping(base.as_ptr(), base.len()) };
    let mut crashes = CrashPoints::new(trace, base, PowerFailDomain::AdrPortable);
    let (mut images, mut read, mut ended) = (0, 0, Vec::new());
    while let Some(point) = crashes.advance() {
        crashes.bring_up_to_date(&mut region).unwrap();
        for event in &trace.events[read..point.position] {
            if let Event::Marker { marker: Marker::End(number), .. } = event {
                ended.push(*number);
            }
        }
        read = point.position;
        let states = crashes.states();
        let seed = budget.seed ^ point.position as u64;
        for choice in states.images(ImageBudget { seed, ..budget }) {
            images += 1;
            states.apply(&choice, &mut region).unwrap();
            // SAFETY: nobody else uses the region, and the pool is gone before the next image.
            let alias = unsafe { region.alias() };
            let domain = Modelled::over(&alias, Config::tracking());
            let pool = Arc::new(Pool::open(alias, domain.clone()).unwrap());
            pool.abandon();
            let survived = survives(&ended, &pool);
            drop(pool);
            domain.revert(&mut region);
            states.revert(&choice, &mut region).unwrap();
            if !survived {
                return None;
            }
        }
    }
    Some(images)
}

/// A hundred thousand images of each of two seeds.
pub fn at_length(name: &str, cut: impl Fn(ImageBudget) -> u64) {
    for seed in [101, 202] {
        let mut images = 0;
        for round in 0.. {
            let seed = seed << 32 | round;
            images += cut(ImageBudget { exhaustive_limit: 256, samples: 400, seed });
            if images >= 100_000 {
                break;
            }
        }
        println!("{name} seed {seed}: {images} images");
    }
}
