//! Blocks of commands and their markers, read from short pages.

use super::*;

fn read(text: &str) -> Result<Vec<ConsoleBlock>, Violation> {
    blocks(&TextFile { path: "page.md".into(), text: text.to_owned() })
}

#[test]
fn commands_have_their_continuation_lines_and_no_output() {
    let page = "# Page\n\n## Begin here\n\n1. A list:\n\n    ```console\n    $ one --flag \\\n        --more x\n    output\n    \
                $ two | three\n    ```\n\n```yaml\n# $ not a command\n```\n\n```console\n$ four\n```\n";
    let block = |line, commands: &[&str]| ConsoleBlock {
        line,
        section: "Begin here".to_owned(),
        not_run: None,
        commands: commands.iter().map(|command| (*command).to_owned()).collect(),
    };
    assert_eq!(
        read(page),
        Ok(vec![block(7, &["one --flag \\\n    --more x", "two | three"]), block(18, &["four"])])
    );
}

#[test]
fn a_marker_gives_the_reason_for_the_next_block_alone() {
    let page = "<!-- not run: It needs a machine\nthat is not here. -->\n\n```console\n$ one\n```\n\n```console\n$ two\n```\n";
    let reasons: Vec<_> = read(page).unwrap().into_iter().map(|block| block.not_run).collect();
    assert_eq!(reasons, [Some("It needs a machine that is not here.".to_owned()), None]);
}

#[test]
fn faults_of_a_page_are_named_with_their_line() {
    let block = "```console\n$ one\n```\n";
    for (page, line, word) in [
        (format!("\n<!-- not run: too slow -->\n{block}"), 2, "sentence"),
        (format!("<!-- not run: It is much too slow -->\n{block}"), 1, "sentence"),
        (format!("<!-- not run: It is much too slow. -->\nText.\n{block}"), 1, "directly before"),
        ("<!-- not run: It is much too slow. -->\n".to_owned(), 1, "directly before"),
        ("\n```console\noutput\n```\n".to_owned(), 2, "`$ `"),
    ] {
        let violation = read(&page).unwrap_err();
        assert!(violation.line == line && violation.says.contains(word), "{page}: {violation}");
    }
}
