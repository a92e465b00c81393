//! `atta node --install`: the systemd unit of a node.
//!
//! A unit of the system where root installs it, else one of the user. The unit is a file and no
//! more: what starts and stops the node are commands of systemd, which are printed. It holds no
//! secret; the node finds its key where `atta node` found it.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use super::NodeArgs;
use crate::{failure::Failure, output::Stdout, ring::say};

/// Name of the unit.
const UNIT: &str = "atta-node.service";
/// A directory that is there where systemd runs: sd_booted(3).
const BOOTED: &str = "/run/systemd/system";
/// Where an administrator's units are: systemd.unit(5).
const SYSTEM_UNITS: &str = "/etc/systemd/system";

/// Whose systemd starts the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    System,
    User,
}

impl Manager {
    fn of_this_user() -> Self {
        match is_root() {
            true => Self::System,
            false => Self::User,
        }
    }

    /// Where its units are.
    fn units(self) -> Result<PathBuf, Failure> {
        if self == Self::System {
            return Ok(PathBuf::from(SYSTEM_UNITS));
        }
        let named = |name| env::var_os(name).filter(|value| !value.is_empty());
        let config = named("XDG_CONFIG_HOME").map(PathBuf::from);
        let config = config.or_else(|| Some(PathBuf::from(named("HOME")?).join(".config")));
        let config = config.ok_or_else(|| {
            Failure::Failed("no place for the units of this user is known: set HOME".to_owned())
        })?;
        Ok(config.join("systemd").join("user"))
    }

    /// The target that starts the node.
    fn target(self) -> &'static str {
        match self {
            Self::System => "multi-user.target",
            Self::User => "default.target",
        }
    }

    fn systemctl(self) -> &'static str {
        match self {
            Self::System => "systemctl",
            Self::User => "systemctl --user",
        }
    }
}

/// Whether this process is root's.
fn is_root() -> bool {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::MetadataExt;
        let process = fs::metadata("/proc/self");
        process.is_ok_and(|process| process.uid() == 0)
    }
    // systemd is on Linux only.
    #[cfg(not(target_os = "linux"))]
    false
}

/// Whether systemd is there.
pub(super) fn check() -> Result<(), Failure> {
    match Path::new(BOOTED).is_dir() {
        true => Ok(()),
        false => Err(Failure::Failed(
            "systemd does not run here: have `atta node` started by what does".to_owned(),
        )),
    }
}

/// Writes the unit. `is_first`: a key was made just now.
pub(super) fn install(args: &NodeArgs, is_first: bool) -> Result<(), Failure> {
    let manager = Manager::of_this_user();
    let text = unit(manager, &here()?, &options(args)?)?;
    let directory = manager.units()?;
    fs::create_dir_all(&directory).map_err(|error| Failure::at(&directory, error))?;
    let path = directory.join(UNIT);
    fs::write(&path, text).map_err(|error| Failure::at(&path, error))?;
    say(&format!("wrote {}; these start the node:", path.display()));
    let mut out = Stdout::lock();
    let systemctl = manager.systemctl();
    out.line(&format!(
        "{systemctl} daemon-reload\n{systemctl} enable --now {UNIT}"
    ))?;
    if manager == Manager::User {
        say("so that it runs while you are not logged in, too: loginctl enable-linger");
    }
    if is_first {
        say("a key was made: `atta cluster invite` prints the token for other machines");
    }
    Ok(())
}

/// Removes the unit, and the link by which it is started.
pub(super) fn uninstall() -> Result<(), Failure> {
    let manager = Manager::of_this_user();
    remove(&manager.units()?, manager)?;
    let mut out = Stdout::lock();
    let systemctl = manager.systemctl();
    say("these stop a node that runs:");
    out.line(&format!("{systemctl} stop {UNIT}"))?;
    out.line(&format!("{systemctl} daemon-reload"))
}

fn remove(units: &Path, manager: Manager) -> Result<(), Failure> {
    let path = units.join(UNIT);
    fs::remove_file(&path).map_err(|error| Failure::at(&path, error))?;
    let link = units.join(format!("{}.wants", manager.target())).join(UNIT);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::at(&link, error)),
        _ => {
            say(&format!("removed {}", path.display()));
            Ok(())
        }
    }
}

/// The program, its directory, and the variables by which it finds its files.
struct Here {
    program: PathBuf,
    directory: PathBuf,
    variables: Vec<(&'static str, String)>,
}

fn here() -> Result<Here, Failure> {
    let failed = |error: io::Error| Failure::Failed(format!("the place of this program: {error}"));
    let variables = ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"];
    let variables = variables.map(|name| Some((name, env::var(name).ok()?)));
    Ok(Here {
        program: env::current_exe().map_err(failed)?,
        directory: env::current_dir().map_err(failed)?,
        variables: variables.into_iter().flatten().collect(),
    })
}

/// The options that the node is started with: those that are no secret and not of this start only.
fn options(args: &NodeArgs) -> Result<Vec<String>, Failure> {
    let path = |path: &Path| match path.to_str() {
        Some(path) => Ok(path.to_owned()),
        None => Err(Failure::at(path, "a unit cannot name it: it is not UTF-8")),
    };
    let mut options = Vec::new();
    let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
    if let Some(name) = &args.name {
        add("--name", name.clone());
    }
    for models in &args.models {
        add("--models", path(models)?);
    }
    if let Some(parts) = &args.parts {
        add("--parts", path(parts)?);
    }
    if args.disk_budget != NodeArgs::DISK_BUDGET {
        add("--disk-budget", bytes(args.disk_budget));
    }
    if let Some(listen) = &args.listen {
        add("--listen", listen.clone());
    }
    if let Some(n) = args.ram_budget {
        add("--ram-budget", bytes(n));
    }
    if let Some(n) = args.threads {
        add("-j", n.to_string());
    }
    for peer in &args.membership.peers {
        add("--peer", peer.clone());
    }
    if let Some(key) = &args.membership.key {
        add("--key", path(key)?);
    }
    if args.public {
        options.push("--public".to_owned());
    }
    if args.membership.no_discovery {
        options.push("--no-discovery".to_owned());
    }
    Ok(options)
}

/// The text of the unit: systemd.service(5).
fn unit(manager: Manager, here: &Here, options: &[String]) -> Result<String, Failure> {
    let program = here.program.display().to_string();
    let mut command = vec![quoted(&program)?, "node".to_owned()];
    for option in options {
        command.push(quoted(option)?);
    }
    let mut lines = vec![
        "[Unit]".to_owned(),
        "Description=atta node: runs layers of models for other machines".to_owned(),
    ];
    if manager == Manager::System {
        // The node finds others that come later; this spares it the first tries.
        lines.push("Wants=network-online.target".to_owned());
        lines.push("After=network-online.target".to_owned());
    }
    lines.extend(["".to_owned(), "[Service]".to_owned()]);
    for (name, value) in &here.variables {
        lines.push(format!(
            "Environment={}",
            quoted(&format!("{name}={value}"))?
        ));
    }
    // A path to the end of the line, without quotes.
    let directory = checked(&here.directory.display().to_string())?.replace('%', "%%");
    lines.push(format!("WorkingDirectory={directory}"));
    lines.push(format!("ExecStart={}", command.join(" ")));
    for line in ["Restart=on-failure", "RestartSec=5", "NoNewPrivileges=yes"] {
        lines.push(line.to_owned());
    }
    lines.extend(["".to_owned(), "[Install]".to_owned()]);
    lines.push(format!("WantedBy={}\n", manager.target()));
    Ok(lines.join("\n"))
}

/// A word of a command: systemd.syntax(7) for quotes, systemd.unit(5) for `%`, systemd.service(5)
/// for `$`.
fn quoted(word: &str) -> Result<String, Failure> {
    let word = checked(word)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Ok(word.to_owned());
    }
    let escaped = word
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$");
    Ok(format!("\"{escaped}\""))
}

/// Text that stays on its line.
fn checked(text: &str) -> Result<&str, Failure> {
    match text.chars().any(char::is_control) {
        true => Err(Failure::Failed(format!(
            "a unit cannot hold the control characters of {text:?}"
        ))),
        false => Ok(text),
    }
}

/// A size as the options take it.
fn bytes(n: u64) -> String {
    match n {
        0 => "0".to_owned(),
        n => format!("{n}B"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn here() -> Here {
        Here {
            program: "/usr/local/bin/atta".into(),
            directory: "/srv/my models".into(),
            variables: vec![("HOME", "/root".to_owned())],
        }
    }

    fn args(words: &[&str]) -> NodeArgs {
        let command = NodeArgs::augment_args(clap::Command::new("node"));
        let matches = command.get_matches_from([&["node"], words].concat());
        NodeArgs::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_unit_without_options_has_none() {
        assert!(options(&args(&["--install"])).unwrap().is_empty());
    }

    fn written(manager: Manager, words: &[&str]) -> String {
        unit(manager, &here(), &options(&args(words)).unwrap()).unwrap()
    }

    #[test]
    fn the_unit_of_the_system_starts_the_node_with_its_options() {
        let words = [
            "--install",
            "--name",
            "pi1",
            "--models",
            "a b",
            "--models",
            "/m",
            "-j",
            "4",
            "--ram-budget",
            "2G",
            "--listen",
            "eth0:9990",
            "--peer",
            "pi2",
            "--no-discovery",
        ];
        let expected = "\
[Unit]
Description=atta node: runs layers of models for other machines
Wants=network-online.target
After=network-online.target

[Service]
Environment=HOME=/root
WorkingDirectory=/srv/my models
ExecStart=/usr/local/bin/atta node --name pi1 --models \"a b\" --models /m --listen eth0:9990 \
--ram-budget 2147483648B -j 4 --peer pi2 --no-discovery
Restart=on-failure
RestartSec=5
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
";
        assert_eq!(written(Manager::System, &words), expected);
    }

    #[test]
    fn the_unit_of_a_user_waits_for_no_network_and_has_no_secret() {
        let words = [
            "--install",
            "--join",
            "atta1-SECR-ET",
            "--qr",
            "--disk-budget",
            "1G",
        ];
        let text = written(Manager::User, &words);
        assert!(
            !text.contains("SECR") && !text.contains("network"),
            "{text}"
        );
        assert!(text.ends_with("WantedBy=default.target\n"), "{text}");
        let start = "ExecStart=/usr/local/bin/atta node --disk-budget 1073741824B\n";
        assert!(text.contains(start), "{text}");
    }

    #[test]
    fn every_option_but_those_of_one_start_is_in_the_unit() {
        let all = NodeArgs::augment_args(clap::Command::new("node"));
        let once = ["join", "qr", "install", "uninstall"];
        let words = [
            "--name",
            "n",
            "--models",
            "m",
            "--parts",
            "p",
            "--disk-budget",
            "1B",
            "--listen",
            "l",
            "--public",
            "--ram-budget",
            "2B",
            "-j",
            "3",
            "--peer",
            "q",
            "--key",
            "k",
            "--no-discovery",
        ];
        let written = options(&args(&words)).unwrap();
        for argument in all.get_arguments() {
            let id = argument.get_id().as_str();
            let long = argument.get_long().map(|long| format!("--{long}"));
            let flag = long.unwrap_or_else(|| "-j".to_owned());
            assert_eq!(written.contains(&flag), !once.contains(&id), "{id}");
        }
    }

    #[test]
    fn words_with_signs_of_systemd_are_quoted() {
        assert_eq!(quoted("/a/b-c.d").unwrap(), "/a/b-c.d");
        assert_eq!(quoted("").unwrap(), "\"\"");
        assert_eq!(quoted(r#"a b"%$\"#).unwrap(), r#""a b\"%%$$\\""#);
        assert!(quoted("a\nb").is_err());
    }

    #[test]
    fn removing_takes_the_unit_and_its_link() {
        let units = env::temp_dir().join(format!("atta-units-{}", std::process::id()));
        let wants = units.join("default.target.wants");
        fs::create_dir_all(&wants).unwrap();
        fs::write(units.join(UNIT), "").unwrap();
        fs::write(wants.join(UNIT), "").unwrap();
        remove(&units, Manager::User).unwrap();
        assert!(!units.join(UNIT).exists() && !wants.join(UNIT).exists());
        assert!(
            remove(&units, Manager::User).is_err(),
            "there is none any more"
        );
        fs::remove_dir_all(&units).unwrap();
    }
}
