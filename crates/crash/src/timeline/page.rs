//! A shrunk violation as a page of its own: one row per event, one lane per line.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::report::Shrunk;
use crate::timeline::entry::{EntryKind, LineState};
use crate::timeline::{byte, place};

/// Lanes beyond which lines are not drawn.
const MOST_LANES: usize = 40;

const STYLE: &str = "\
body{font:14px/1.45 system-ui,sans-serif;margin:2em;color:#1c1c1e;background:#fff}
code,td,th{font-family:ui-monospace,monospace;font-size:12px}
table{border-collapse:collapse}
td,th{padding:2px 6px;border-bottom:1px solid #e4e4e8;text-align:left;vertical-align:top}
td.event{color:#777;text-align:right}
td.source{color:#777}
td.worker{text-align:center}
td.w0{background:#e3f0ff}td.w1{background:#ffeadb}td.w2{background:#e6f6e1}td.w3{background:#f1e6fa}
td.lane{padding:0 3px;min-width:1.6em;text-align:center}
th.lane{writing-mode:vertical-rl;font-weight:normal}
tr.operation td.text{font-weight:bold}
tr.store td.text,tr.flush td.text,tr.fence td.text,tr.line td.text,tr.read td.text{padding-left:2em}
tr.omitted td.text{padding-left:2em;color:#777}
tr.crash{background:#fde8e8}
tr.verdict{background:#fbd5d5;font-weight:bold}
.pending{background:#fff1b8}.flushed{background:#ffd591}.durable{background:#b7e4c7}
.lost{background:#f4a3a3}.partly{background:#d9b8f0}.persisted{background:#a9cdf5}
";

impl Shrunk {
    /// The timeline as a page: text and style in one, nothing to be fetched.
    pub fn page(&self) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_page(&mut page);
        page
    }

    fn write_page(&self, page: &mut String) -> std::fmt::Result {
        let subject = escaped(&self.subject);
        write!(
            page,
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <title>{subject}: a crash that was not survived</title>\n<style>\n{STYLE}</style>\n\
             </head>\n<body>\n<h1>{subject}: a crash that was not survived</h1>\n\
             <p><strong>{}</strong></p>\n<p>Broken: {}.</p>\n<p>Again: <code>{}</code></p>\n",
            escaped(&self.what),
            escaped(&self.clause),
            escaped(&self.replay),
        )?;
        page.push_str("<p>");
        for state in STATES {
            write!(page, "<span class=\"{}\">&nbsp;{}&nbsp;</span> ", name(state), told(state))?;
        }
        page.push_str("</p>\n<ol>\n");
        for operation in &self.operations {
            let (number, what) = (operation.number, escaped(&operation.what));
            let by = operation.worker.map_or(String::new(), |worker| format!("worker {worker}: "));
            writeln!(page, "<li value=\"{number}\">{by}<code>{what}</code></li>")?;
        }
        page.push_str("</ol>\n");
        if let Some(history) = &self.history {
            let schedule = escaped(&history.schedule);
            writeln!(page, "<p>Schedule: <code>{schedule}</code></p>\n<p>Beforehand:</p>\n<ol>")?;
            for operation in &history.before {
                let (number, what) = (operation.number, escaped(&operation.what));
                writeln!(page, "<li value=\"{number}\"><code>{what}</code></li>")?;
            }
            page.push_str("</ol>\n");
        }
        self.write_table(page)?;
        page.push_str("</body>\n</html>\n");
        Ok(())
    }

    fn write_table(&self, page: &mut String) -> std::fmt::Result {
        let mut lanes: BTreeMap<u32, Option<LineState>> = BTreeMap::new();
        // The uncertain lines first, for they are the point.
        let uncertain = self.lines.iter().map(|fate| fate.line);
        let others = self.timeline.iter().flat_map(|entry| &entry.lines).map(|it| it.line);
        for line in uncertain.chain(others) {
            if lanes.len() < MOST_LANES {
                lanes.insert(line, None);
            }
        }
        let by_worker = self.names_workers();
        page.push_str("<table>\n<tr><th>event</th>");
        if by_worker {
            page.push_str("<th>worker</th>");
        }
        page.push_str("<th></th>");
        for &line in lanes.keys() {
            let offset = u64::from(line) * 64;
            let place = if self.recorded { byte(offset) } else { place(offset) };
            write!(page, "<th class=\"lane\" title=\"{place}\">line {line}</th>")?;
        }
        page.push_str("<th>source</th></tr>\n");
        for entry in &self.timeline {
            for change in &entry.lines {
                if let Some(state) = lanes.get_mut(&change.line) {
                    *state = Some(change.state);
                }
            }
            write!(
                page,
                "<tr class=\"{}\"><td class=\"event\">{}</td>",
                kind_name(entry.kind),
                entry.event,
            )?;
            if by_worker {
                let worker = entry.worker.map_or(String::new(), |worker| worker.to_string());
                write!(page, "<td class=\"worker w{worker}\">{worker}</td>")?;
            }
            write!(page, "<td class=\"text\">{}</td>", escaped(&entry.text))?;
            for (line, state) in &lanes {
                let changes = entry.lines.iter().any(|change| change.line == *line);
                let mark = if changes { "●" } else { "" };
                let class = state.map_or("", name);
                write!(page, "<td class=\"lane {class}\">{mark}</td>")?;
            }
            let source = entry.source.as_deref().map_or(String::new(), escaped);
            writeln!(page, "<td class=\"source\">{source}</td></tr>")?;
        }
        page.push_str("</table>\n");
        Ok(())
    }
}

const STATES: [LineState; 6] = [
    LineState::Pending,
    LineState::Flushed,
    LineState::Durable,
    LineState::Lost,
    LineState::Partly,
    LineState::Persisted,
];

fn name(state: LineState) -> &'static str {
    match state {
        LineState::Pending => "pending",
        LineState::Flushed => "flushed",
        LineState::Durable => "durable",
        LineState::Lost => "lost",
        LineState::Partly => "partly",
        LineState::Persisted => "persisted",
    }
}

fn told(state: LineState) -> &'static str {
    match state {
        LineState::Pending => "stored, not flushed",
        LineState::Flushed => "flushed, not fenced",
        LineState::Durable => "durable",
        LineState::Lost => "lost in the crash",
        LineState::Partly => "partly lost",
        LineState::Persisted => "made it without a fence",
    }
}

fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Operation => "operation",
        EntryKind::Omitted => "omitted",
        EntryKind::Store => "store",
        EntryKind::Flush => "flush",
        EntryKind::Fence => "fence",
        EntryKind::Block => "block",
        EntryKind::Crash => "crash",
        EntryKind::Line => "line",
        EntryKind::Read => "read",
        EntryKind::Verdict => "verdict",
    }
}

/// Text as it stands in a page, in an attribute too.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{KeptOperation, ShrunkHistory};
    use crate::timeline::entry::{LineChange, LineFate, TimelineEntry};

    fn shrunk(text: &str) -> Shrunk {
        let line = 1025;
        Shrunk {
            subject: "wort:u64".to_owned(),
            operations: vec![KeptOperation { number: 3, worker: None, what: text.to_owned() }],
            lines: vec![LineFate {
                line,
                offset: 65600,
                place: place(65600),
                state: LineState::Lost,
            }],
            timeline: vec![TimelineEntry {
                event: 7,
                worker: None,
                kind: EntryKind::Store,
                text: text.to_owned(),
                source: Some(text.to_owned()),
                lines: vec![LineChange { line, state: LineState::Pending }],
            }],
            clause: "the invariants of the structure hold".to_owned(),
            what: text.to_owned(),
            replay: text.to_owned(),
            explorations: 1,
            history: None,
            recorded: false,
        }
    }

    #[test]
    fn whatever_a_key_holds_stays_text() {
        let page = shrunk("<script>alert('\"&')</script>").page();
        assert!(!page.contains("<script>"));
        assert_eq!(
            page.matches("&lt;script&gt;alert(&#39;&quot;&amp;&#39;)&lt;/script&gt;").count(),
            5
        );
    }

    #[test]
    fn with_several_workers_there_is_a_column_that_says_who_does_what() {
        let mut shrunk = shrunk("Insert(1, 2)");
        assert!(!shrunk.page().contains("<th>worker</th>"));
        shrunk.timeline[0].worker = Some(2);
        shrunk.history = Some(ShrunkHistory {
            workers: 2,
            before: vec![KeptOperation { number: 5, worker: None, what: "<before>".to_owned() }],
            schedule: "0x3,2x1".to_owned(),
            switches: 1,
            deviations: None,
        });
        let page = shrunk.page();
        for part in [
            "<th>worker</th>",
            "<td class=\"worker w2\">2</td>",
            "0x3,2x1",
            "<li value=\"5\"><code>&lt;before&gt;</code></li>",
        ] {
            assert!(page.contains(part), "{part}");
        }
    }

    #[test]
    fn a_page_needs_nothing_from_elsewhere() {
        let page = shrunk("Insert(1, 2)").page();
        for word in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn a_line_has_a_lane_that_shows_its_state() {
        let page = shrunk("Insert(1, 2)").page();
        assert!(page.contains("<th class=\"lane\" title=\"chunk 1 + 0x40\">line 1025</th>"));
        assert!(page.contains("<td class=\"lane pending\">●</td>"));
    }
}
