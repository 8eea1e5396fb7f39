//! try
use lapis_crash::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let s: Structure = a[1].parse().unwrap();
    let ops = a[2].parse().unwrap();
    let seed = a[3].parse().unwrap();
    let mut o = ExploreOptions { ops, seed, ..Default::default() };
    if let Ok(at) = std::env::var("AT") {
        o.replay = Some(Replay {
            position: at.parse().unwrap(),
            image: std::env::var("IMAGE").unwrap().split(',').map(|c| c.parse().unwrap()).collect(),
        });
    }
    let r = explore_structure(s, None, &o, &|_| {}).unwrap();
    println!(
        "{} points {} exhaustive {} images {} in_rec {} states {} {:.0}/s {:.1}s violations {}",
        r.structure,
        r.crash_points,
        r.exhaustive_points,
        r.images,
        r.images_in_recovery,
        r.distinct_states,
        r.images_per_s,
        r.seconds,
        r.violations.len()
    );
    for v in r.violations.iter().take(5) {
        println!(
            "  pos {} {} op {:?} ack {:?} img {:?}: {}",
            v.position, v.point, v.operation, v.acknowledged, v.image, v.what
        );
        println!("   {}", v.replay);
    }
    if a.len() > 4 {
        let rows = structure_persist_points(s, &o, &[seed, seed + 1], &|_| {}).unwrap();
        for r in rows {
            println!(
                "{} {} {} {:?}",
                r.name,
                r.killed,
                r.images,
                r.by.map(|b| b.chars().take(100).collect::<String>())
            );
        }
    }
}
