//! The image and the compose file, end to end. `scripts/images` says by `TOLLGATE_COMPOSE` that a
//! container engine answers and that the base images are there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::client::{get, request};
use crate::config::Folder;
use crate::process::text;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let told = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {told:?}");
    output
}

fn docker(arguments: &[&str]) -> String {
    let output = run(Command::new("docker")
        .env("DOCKER_BUILDKIT", "0")
        .args(arguments));
    text(&output.stdout).trim().to_owned()
}

/// An image that goes with the test.
struct Image(String);

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("docker")
            .args(["image", "rm", "-f", &self.0])
            .output();
    }
}

/// The image of the Dockerfile, with the program of these tests in the place of one that is
/// compiled in it, which takes minutes and crates that a container has to fetch.
fn build(name: &str) -> (Image, Image) {
    let base = format!("tollgate-test/{name}-base:{}", std::process::id());
    let root = root();
    docker(&[
        "build",
        "-q",
        "--target",
        "runtime",
        "-t",
        &base,
        root.to_str().unwrap(),
    ]);
    let base = Image(base);
    let folder = Folder::new(name);
    std::fs::copy(
        env!("CARGO_BIN_EXE_tollgate"),
        folder.path().join("tollgate"),
    )
    .unwrap();
    let from = format!("FROM {}\nCOPY tollgate /usr/local/bin/tollgate\n", base.0);
    folder.write("Dockerfile", &from);
    let image = format!("tollgate-test/{name}:{}", std::process::id());
    docker(&["build", "-q", "-t", &image, folder.path().to_str().unwrap()]);
    (Image(image), base)
}

/// What compose started, until it is dropped.
struct Composed {
    command: Vec<String>,
    project: String,
    over: String,
    _folder: Folder,
}

impl Composed {
    fn run(&self, arguments: &[&str]) -> String {
        let root = root();
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .args(["-p", &self.project, "-f"])
            .arg(root.join("compose.yaml"))
            .args(["-f", &self.over])
            .args(arguments)
            .env("HOST_PORT", "0")
            .current_dir(&root);
        text(&run(&mut command).stdout).trim().to_owned()
    }

    fn address(&self) -> SocketAddr {
        self.run(&["port", "tollgate", "8000"]).parse().unwrap()
    }

    fn container(&self, service: &str) -> String {
        self.run(&["ps", "-q", service])
    }
}

impl Drop for Composed {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.run(&["down", "-v", "-t", "5"]);
            return;
        }
        let logs = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let logs = self.run(&["logs", "--no-color"]);
            self.run(&["down", "-v", "-t", "1"]);
            logs
        }));
        eprintln!("{}", logs.unwrap_or_default());
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn s36_compose_starts_the_service_once_redis_is_healthy() {
    let Ok(compose) = std::env::var("TOLLGATE_COMPOSE") else {
        eprintln!("no container engine: scripts/images tells more");
        return;
    };
    let (image, _base) = build("compose");
    let folder = Folder::new("compose-file");
    let over = format!("services:\n  tollgate:\n    image: {}\n", image.0);
    let composed = Composed {
        command: compose.split(' ').map(str::to_owned).collect(),
        project: format!("tollgate-test-{}", std::process::id()),
        over: folder.write("over.yaml", &over),
        _folder: folder,
    };
    composed.run(&["up", "-d", "--no-build"]);
    let service = composed.container("tollgate");
    let inspect = |format: &str| docker(&["inspect", "--format", format, &service]);
    wait("the image's own health check passes", || {
        inspect("{{.State.Health.Status}}") == "healthy"
    });
    let address = composed.address();
    assert!(
        address.ip().is_loopback(),
        "an open admin surface is published here only"
    );
    let health = get(address, "/health");
    assert_eq!(health.text(), r#"{"status":"ok","redis":"ok"}"#, "s62");
    let user = inspect("{{.Config.User}}");
    assert!(
        !user.is_empty() && !user.starts_with('0') && user != "root",
        "{user}"
    );
    // The admin surface is open here, and has the rule of the sample file; the rest is limited by
    // it, in the store.
    let rules = get(address, "/rules");
    assert!(rules.text().contains("\"addresses\""), "{rules:?}");
    let remaining = ["99", "98"].map(|remaining| {
        let answer = request(address, "GET", "/orders", "");
        let limit = answer.header("x-ratelimit-limit").map(str::to_owned);
        let told = answer.header("x-ratelimit-remaining").map(str::to_owned);
        (
            limit.as_deref() == Some("100"),
            told.as_deref() == Some(remaining),
        )
    });
    assert_eq!(remaining, [(true, true); 2]);
    let keys = composed.run(&[
        "exec",
        "-T",
        "redis",
        "redis-cli",
        "--raw",
        "KEYS",
        "rate-limit:*",
    ]);
    assert!(keys.contains(":ip_address:"), "{keys}");
    let policy = [
        "exec",
        "-T",
        "redis",
        "redis-cli",
        "--raw",
        "CONFIG",
        "GET",
        "maxmemory-policy",
    ];
    assert!(composed.run(&policy).contains("noeviction"));
    // Only the program was added to the base: no shell is needed, and none is there.
    let size = |image: &str| -> u64 {
        let size = docker(&["image", "inspect", "--format", "{{.Size}}", image]);
        size.parse().unwrap()
    };
    let whole = size(&image.0);
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_tollgate"))
        .unwrap()
        .len();
    let base = size("debian:bookworm-slim");
    assert!(
        whole <= base + program + 1024,
        "{whole}: {base} and {program}"
    );
    // It ends by itself when it is told to.
    composed.run(&["stop", "-t", "20", "tollgate"]);
    assert_eq!(inspect("{{.State.ExitCode}}"), "0");
}
