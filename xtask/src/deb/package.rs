//! A Debian package of a program that is built: its tree, its control files, and the archive.
//!
//! In: the program, and what `packaging/deb` says. Out: one `.deb`, the same for the same input if
//! `SOURCE_DATE_EPOCH` is set. Needs `dpkg-dev` and `gzip`. It must not build the program, nor know
//! what is in the package: that is in `files.toml`. The tests include this file.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// A package to be made.
pub(crate) struct Package<'a> {
    /// The top of the repository.
    pub(crate) repository: &'a Path,
    /// The program.
    pub(crate) program: &'a Path,
    /// The libraries that are in the program, with their licences, a line each.
    pub(crate) libraries: &'a str,
    /// How the archive is compressed: a word that `dpkg-deb -Z` takes.
    pub(crate) compression: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    file: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    from: String,
    to: String,
    #[serde(default = "plain_mode")]
    mode: String,
    #[serde(default)]
    conffile: bool,
}

fn plain_mode() -> String {
    "0644".to_owned()
}

impl Package<'_> {
    /// Makes the package in the directory `out`, and returns its path.
    ///
    /// # Errors
    /// A file that cannot be read or written, or a tool that fails.
    pub(crate) fn build(&self, out: &Path) -> Result<PathBuf> {
        let work = tempfile::tempdir()?;
        let (made, tree) = (work.path().join("made"), work.path().join("tree"));
        self.make(&made)?;
        make_dir(&tree.join("DEBIAN"))?;
        let text = read(&self.repository.join(FILES))?;
        let manifest: Manifest = toml::from_str(&text).with_context(|| FILES.to_owned())?;
        for entry in &manifest.file {
            let from = match entry.from.strip_prefix('@') {
                Some(name) => made.join(name),
                None => self.repository.join(&entry.from),
            };
            let mode = u32::from_str_radix(&entry.mode, 8).with_context(|| format!("{FILES}: {}", entry.to))?;
            install(&from, &tree.join(entry.to.trim_start_matches('/')), mode)?;
        }
        let version = version(self.program)?;
        self.describe(&tree, &manifest, &version, work.path())?;
        let (arch, _) = run(Command::new("dpkg").arg("--print-architecture"))?;
        let deb = out.join(format!("longhaul_{version}_{}.deb", arch.trim()));
        make_dir(out)?;
        let mut pack = Command::new("dpkg-deb");
        run(pack.args(["--root-owner-group", "-Z", self.compression, "--build"]).args([&tree, &deb]))?;
        Ok(deb)
    }

    /// Makes what the program says of itself: pages and completions.
    fn make(&self, made: &Path) -> Result<()> {
        let (man, completions) = (made.join("man"), made.join("completions"));
        make_dir(&man)?;
        make_dir(&completions)?;
        install(self.program, &made.join("longhaul"), 0o755)?;
        write(&made.join("libraries"), self.libraries)?;
        run(Command::new(self.program).arg("man").arg(&man))?;
        for page in entries(&man)? {
            run(Command::new("gzip").args(["-9", "-n"]).arg(page))?;
        }
        for shell in ["bash", "zsh", "fish"] {
            let (script, _) = run(Command::new(self.program).args(["completions", shell]))?;
            write(&completions.join(shell), &script)?;
        }
        Ok(())
    }

    /// Writes the control files.
    fn describe(&self, tree: &Path, manifest: &Manifest, version: &str, work: &Path) -> Result<()> {
        let control = tree.join("DEBIAN");
        let scripts = self.repository.join("packaging/deb");
        for script in ["postinst", "prerm", "postrm"] {
            install(&scripts.join(script), &control.join(script), 0o755)?;
        }
        let conffiles = manifest.file.iter().filter(|entry| entry.conffile).map(|entry| format!("{}\n", entry.to));
        write(&control.join("conffiles"), &conffiles.collect::<String>())?;
        let (sizes, _) =
            run(Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1024"]).arg(tree))?;
        let (arch, _) = run(Command::new("dpkg").arg("--print-architecture"))?;
        let text = read(&scripts.join("control"))?
            .replace("@VERSION@", version)
            .replace("@ARCHITECTURE@", arch.trim())
            .replace("@INSTALLED_SIZE@", sizes.split_whitespace().next().unwrap_or("0"))
            .replace("@SHARED_LIBRARIES@", &shared_libraries(self.program, work)?);
        ensure!(
            !text.contains('@') || text.matches('@').count() == MAINTAINER_SIGNS,
            "a word is left in control: {text}"
        );
        write(&control.join("control"), &text)?;
        let listed =
            "find . -path ./DEBIAN -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum | sed 's| \\./| |'";
        let (sums, _) = run(Command::new("sh").args(["-c", listed]).current_dir(tree))?;
        write(&control.join("md5sums"), &sums)
    }
}

/// The version that the program tells of itself.
fn version(program: &Path) -> Result<String> {
    #[derive(Deserialize)]
    struct Told {
        version: String,
    }
    let (told, _) = run(Command::new(program).args(["--version", "--json"]))?;
    let told: Told = serde_json::from_str(&told).with_context(|| format!("--version --json said {told:?}"))?;
    Ok(told.version)
}

/// The packages of the libraries that the program is linked with, in the form of `Depends`.
fn shared_libraries(program: &Path, work: &Path) -> Result<String> {
    // The tool wants the directory of a source package.
    make_dir(&work.join("source/debian"))?;
    write(&work.join("source/debian/control"), "Source: longhaul\n\nPackage: longhaul\nArchitecture: any\n")?;
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let mut tool = Command::new("dpkg-shlibdeps");
    let (found, _) = run(tool.arg("-O").arg(format!("-e{}", program.display())).current_dir(work.join("source")))?;
    let found = found.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    found.map(str::to_owned).context("dpkg-shlibdeps named no package")
}

/// Copies a file, or the files of a directory.
fn install(from: &Path, to: &Path, mode: u32) -> Result<()> {
    if from.is_dir() {
        return entries(from)?.iter().try_for_each(|file| {
            let name = file.file_name().context("a name")?;
            install(file, &to.join(name), mode)
        });
    }
    let parent = to.parent().context("a file lies in a directory")?;
    make_dir(parent)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, Permissions::from_mode(mode)).with_context(|| to.display().to_string())
}

/// The entries of a directory, sorted.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let found = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut found = found.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    found.sort();
    Ok(found)
}

/// Makes a directory with those above it, whatever the umask.
fn make_dir(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent() {
        make_dir(parent)?;
    }
    fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::set_permissions(dir, Permissions::from_mode(0o755)).with_context(|| dir.display().to_string())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o644)).with_context(|| path.display().to_string())
}

/// Runs a tool; what it says on standard output and standard error.
fn run(command: &mut Command) -> Result<(String, String)> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {tool}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("{tool} failed: {}\n{said}", output.status);
    }
    Ok((String::from_utf8(output.stdout).with_context(|| format!("what {tool} says"))?, said))
}

const FILES: &str = "packaging/deb/files.toml";
/// Signs in the control file that mark no word: the one of the maintainer's address.
const MAINTAINER_SIGNS: usize = 1;
