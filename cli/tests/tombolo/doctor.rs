//! Tests of `tombolo doctor` where it has nothing to check.

use crate::workdir::{WorkDir, assert_says, stdout};

#[test]
fn a_doctor_without_a_file_says_which_file_to_name() {
    let workdir = WorkDir::new();
    for (line, words) in [
        (
            "doctor",
            ["no --kubeconfig is given, and there is no", "`tombolo kubeconfig`", "`tombolo doctor server`"],
        ),
        ("doctor --kubeconfig none", ["kubeconfig", "cannot read none", "No such file"]),
        ("doctor agent --config none.yaml", ["configuration", "cannot read none.yaml", "with --config"]),
        ("doctor server --config none.yaml", ["configuration", "cannot read none.yaml", "with --config"]),
    ] {
        let said = stdout(workdir.run(line).code(2));

        for word in words {
            assert_says(&said, word);
        }
        let findings = said.lines().filter(|line| !line.starts_with("help "));
        assert_eq!(findings.count(), 1, "{line}: {said}");
    }
}
