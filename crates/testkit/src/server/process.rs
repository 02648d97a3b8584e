//! A child process that never outlives its test.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Stands between the test and the server: sends signals that are asked for on its input, and kills
/// the server when its input ends, which it does however the test's process ends; nobody else is left
/// then to remove the folder, unless it was told to keep it. (A parent-death
/// signal would come when the starting *thread* ends, and would need unsafe code.)
const GUARD: &str = r#"
trap '' INT HUP
log=$1; folder=$2; shift 2
"$@" </dev/null >"$log" 2>&1 &
pid=$!
echo $pid
while read -r signal; do
    case $signal in
        KEEP) folder=; continue ;;
        WAIT) wait $pid 2>/dev/null ;;
        ALIVE) if kill -s 0 $pid 2>/dev/null; then echo yes; else echo no; fi; continue ;;
        *) kill -s "$signal" $pid 2>/dev/null
           [ "$signal" = KILL ] && wait $pid 2>/dev/null ;;
    esac
    echo done
done
kill -s KILL $pid 2>/dev/null
wait $pid 2>/dev/null
[ -n "$folder" ] && rm -rf "$folder"
"#;

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct Process {
    guard: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Runs a program in a temporary folder, with its output in the file `log` there.
    pub(super) fn spawn(program: &Path, arguments: &[String], folder: &Path) -> Self {
        let log = folder.join("log");
        let mut guard = Command::new("/bin/sh")
            .args(["-c", GUARD, "guard"])
            .arg(&log)
            .arg(folder)
            .arg(program)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run /bin/sh: {error}"));
        let ask = guard.stdin.take();
        let answers = guard.stdout.take().expect("its output is piped");
        let mut process = Self {
            guard,
            ask,
            answers: BufReader::new(answers),
            pid: 0,
            log,
        };
        process.pid = process
            .answer()
            .parse()
            .expect("the guard says the process id");
        process
    }

    /// Its process id.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.pid
    }

    /// Whether it runs (a frozen one does).
    #[must_use]
    pub fn is_alive(&mut self) -> bool {
        self.tell("ALIVE") == "yes"
    }

    /// Sends a signal by its name without SIG, and returns when it is sent; for KILL when the
    /// process is gone.
    pub fn signal(&mut self, name: &str) {
        self.tell(name);
    }

    /// Returns when it has ended by itself.
    pub fn wait(&mut self) {
        self.tell("WAIT");
    }

    /// What it printed.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn tell(&mut self, what: &str) -> String {
        let Some(ask) = &mut self.ask else {
            return String::new();
        };
        writeln!(ask, "{what}").expect("the guard listens");
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .expect("the guard answers");
        line.trim().into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The end of its input tells the guard to kill and leave; the folder has an owner still.
        if let Some(mut ask) = self.ask.take() {
            let _ = writeln!(ask, "KEEP");
        }
        let _ = self.guard.wait();
    }
}
