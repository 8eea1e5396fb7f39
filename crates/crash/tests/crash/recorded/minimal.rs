//! The image that is told is one of which nothing can be left out.

use lapis_device::trace_file::{FlushInstruction, StoreKind};

use crate::recorded::commands::recovering;
use crate::recorded::program::Program;

#[test]
fn a_refused_image_is_told_with_the_one_line_and_the_first_of_its_states_that_it_takes() {
    let mut program = Program::new();
    program.begin(0, 7);
    for line in 0..10 {
        program.store(0, StoreKind::Plain, 64 * line);
    }
    // Line 3 has three more states, of which the second will do.
    let mut values = Vec::new();
    for _ in 0..3 {
        program.store(0, StoreKind::Ordered, 64 * 3 + 8);
        values.push(program.last_place());
    }
    (0..10).for_each(|line| {
        program.flush(0, FlushInstruction::Clwb, line);
    });
    program.fence(0);
    // Refused where it is there without lines 6 and 8.
    let command = format!(
        "byte() {{ od -An -tu1 -j$2 -N1 \"$1\"; }}; check() {{ echo $(byte \"$1\" 200); [ $(byte \"$1\" 200) -lt {} ] || \
         [ $(byte \"$1\" 384) -ne 0 ] || [ $(byte \"$1\" 512) -ne 0 ]; }}; check",
        values[1]
    );
    let mut options = recovering(&command);
    options.shrink = true;
    options.image_limit = 60;
    let report = program.check(&options);
    let told = report.violations[0].shrunk.as_ref().expect("the first is told");
    let image = told.replay.rsplit(' ').next().unwrap();
    let choices: Vec<u32> = image.split(',').map(|choice| choice.parse().unwrap()).collect();
    let late: Vec<usize> = (0..10).filter(|&line| choices[line] != 0).collect();
    assert_eq!(late, [3], "{image}");
    // What the check says of that image is what is told of it.
    assert!(told.what.ends_with(&format!(": {}", values[1])), "{told}");
}
