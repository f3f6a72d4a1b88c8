//! The form in which a campaign keeps its sources, its destination and its settings.
//!
//! In: what `job add` was asked for. Out: bytes of a row, read back by every command and mover, and
//! the transfer of each source. A version that is not known is refused. Must not know the queue.

use std::path::{Path, PathBuf};

use longhaul_core::{Blame, DatasetName, DatasetPart, Fault, FaultCode, PathError, RelPath};
use longhaul_engine::{Dialler, Job, JobDestination, JobSource, LocalDest, LocalSource, Reach, RemotePath, Settings};
use serde::{Deserialize, Serialize};

use crate::location::host_port;

/// The transfers of a campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CampaignSpec {
    /// The version of this form.
    version: u32,
    /// The sources: all of one site.
    pub sources: Vec<CampaignSource>,
    /// The directory that receives them.
    pub to: CampaignPlace,
    /// The settings of its transfers.
    pub settings: Settings,
    /// The bounds of its shards.
    pub bounds: ShardBounds,
    /// How daemons are met, where movers are not told otherwise.
    #[serde(default)]
    pub keys: CampaignKeys,
    /// The name beneath `to` under which all files appear together, once the last of them is there.
    /// `None`: each appears when it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DatasetName>,
    /// The daemon that dials the other one, where both ends are at daemons.
    #[serde(default, skip_serializing_if = "is_usual")]
    dialler: Dialler,
}

fn is_usual(dialler: &Dialler) -> bool {
    *dialler == Dialler::default()
}

/// How the daemons of a campaign are met: places of keys, and never a key that is secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CampaignKeys {
    /// The file of the private key: an absolute path. `None`: the mover's own.
    pub identity: Option<PathBuf>,
    /// The file of the trusted daemons: an absolute path. `None`: the mover's own.
    pub known_hosts: Option<PathBuf>,
    /// The only key of a daemon that is accepted, as text. `None`: the known hosts decide.
    pub peer_key: Option<String>,
    /// Whether a daemon is trusted that was never seen before.
    #[serde(default)]
    pub trust_on_first_use: bool,
}

/// A source of a campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CampaignSource {
    /// The directory in which its names lie.
    pub top: CampaignPlace,
    /// The one name in it that is meant, if the source is a file. `None`: all of it.
    pub only: Option<RelPath>,
    /// The path beneath the destination at which its names lie. The root path: the destination.
    pub onto: RelPath,
}

/// A directory of this host, or at a daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CampaignPlace {
    /// A directory of this host: an absolute path.
    Here(PathBuf),
    /// At a daemon.
    Daemon {
        /// Host name or address, without brackets.
        host: String,
        /// Its port.
        port: u16,
        /// The root, and the path beneath it.
        path: RemotePath,
    },
}

/// The bounds of a campaign's shards. `None`: those of the planner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardBounds {
    /// Files.
    pub files: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
}

/// The version of the form. A program that knows no other one would have each file appear by
/// itself, so that a campaign with a dataset has the next one; and it would have the destination
/// dial, so that one in which the source does has the one behind that.
const SPEC_VERSION: u32 = 1;
const SPEC_VERSION_OF_DATASET: u32 = 2;
const SPEC_VERSION_OF_DIALLER: u32 = 3;

impl CampaignSpec {
    /// The spec of these transfers.
    pub fn new(
        sources: Vec<CampaignSource>,
        to: CampaignPlace,
        settings: Settings,
        bounds: ShardBounds,
    ) -> CampaignSpec {
        let (version, keys) = (SPEC_VERSION, CampaignKeys::default());
        CampaignSpec { version, sources, to, settings, bounds, keys, dataset: None, dialler: Dialler::default() }
    }

    /// The same transfers, whose files appear together under a name, if there is one.
    #[must_use]
    pub fn as_dataset(self, dataset: Option<DatasetName>) -> CampaignSpec {
        CampaignSpec { dataset, ..self }.versioned()
    }

    /// The same transfers, in which this daemon dials the other one.
    #[must_use]
    pub fn dialled_by(self, dialler: Dialler) -> CampaignSpec {
        CampaignSpec { dialler, ..self }.versioned()
    }

    /// The daemon that dials the other one. `None`: the two ends are not both at daemons.
    pub fn dialler(&self) -> Option<Dialler> {
        let is_far = |place: &CampaignPlace| matches!(place, CampaignPlace::Daemon { .. });
        let is_between = is_far(&self.to) && self.sources.iter().any(|source| is_far(&source.top));
        is_between.then_some(self.dialler)
    }

    /// The same with the version of what it has.
    fn versioned(self) -> CampaignSpec {
        let version = match (self.dialler, &self.dataset) {
            (Dialler::Source, _) => SPEC_VERSION_OF_DIALLER,
            (Dialler::Destination, Some(_)) => SPEC_VERSION_OF_DATASET,
            (Dialler::Destination, None) => SPEC_VERSION,
        };
        CampaignSpec { version, ..self }
    }

    /// The same transfers, whose daemons are met with these keys.
    #[must_use]
    pub fn met_with(self, keys: CampaignKeys) -> CampaignSpec {
        CampaignSpec { keys, ..self }
    }

    /// The bytes of it.
    ///
    /// # Errors
    /// A usage fault if a path of this host is not UTF-8: the names beneath it may be any bytes.
    pub fn encode(&self) -> Result<Vec<u8>, Fault> {
        serde_json::to_vec(self).map_err(|error| {
            let message = format_args!("a campaign cannot keep its sources and its destination: {error}");
            Fault::new(FaultCode::Usage, Blame::Local, message)
                .hint_in_words("name a source and a destination in UTF-8; names beneath them may have any bytes")
        })
    }

    /// Reads it.
    ///
    /// # Errors
    /// A usage fault for a version that is not known, and for bytes that no version has.
    pub fn decode(bytes: &[u8]) -> Result<CampaignSpec, Fault> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let refused = |why: String| {
            Fault::new(FaultCode::Usage, Blame::Local, format_args!("the campaign's transfers cannot be read: {why}"))
                .hint_in_words("use the program that added the campaign, or a newer one")
        };
        let Versioned { version } = serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))?;
        if !(SPEC_VERSION..=SPEC_VERSION_OF_DIALLER).contains(&version) {
            let known = SPEC_VERSION_OF_DIALLER;
            return Err(refused(format!("they have version {version}, and this program knows {known}")));
        }
        serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))
    }

    /// The transfer of a source. `None` if there is no such source, or if its place would be longer
    /// than a path may be.
    pub fn job(&self, source: usize) -> Option<Job> {
        let source = self.sources.get(source)?;
        let from = source.top.contents();
        let Some(dataset) = &self.dataset else {
            let job = Job::between(from, self.destination(&source.onto)?);
            return Some(Job { dialler: self.dialler, ..job });
        };
        let part = DatasetPart::Shard { onto: source.onto.clone() };
        Some(Job::between(from, self.destination(&RelPath::root())?).as_dataset(dataset.clone()).in_part(part))
    }

    /// The commit of its dataset, which reads no source. `None` if each file appears by itself.
    pub fn commit(&self) -> Option<Job> {
        let from = JobSource::Local(Vec::new());
        let job = Job::between(from, self.destination(&RelPath::root())?).as_dataset(self.dataset.clone()?);
        Some(job.in_part(DatasetPart::Commit))
    }

    /// The directory at a path beneath the destination.
    fn destination(&self, onto: &RelPath) -> Option<JobDestination> {
        Some(self.to.clone().at(onto).ok()?.receiving())
    }

    /// The location beneath which its files stand in the end, as a user writes it, escaped.
    pub fn shown_to(&self) -> String {
        let to = self.to.shown();
        match &self.dataset {
            Some(name) => format!("{}/{}", to.trim_end_matches('/'), name.escaped()),
            None => to,
        }
    }

    /// Whether any of its transfers goes to or from a daemon.
    pub fn needs_key(&self) -> bool {
        let places = self.sources.iter().map(|source| &source.top).chain([&self.to]);
        places.into_iter().any(|place| matches!(place, CampaignPlace::Daemon { .. }))
    }

    /// The site that is read from, by its name.
    pub fn site_from(&self) -> String {
        self.sources.first().map_or_else(|| HERE.to_owned(), |source| source.top.site())
    }
}

impl CampaignSource {
    /// The location, as a user writes it, escaped.
    pub fn shown(&self) -> String {
        let shown = self.top.shown();
        self.only.as_ref().map_or_else(|| shown.clone(), |name| format!("{shown}/{}", name.escaped()))
    }
}

impl CampaignPlace {
    /// The dataset with this name in it.
    ///
    /// # Errors
    /// Those of a path that is longer than one may be.
    pub fn with_dataset(self, name: &DatasetName) -> Result<CampaignPlace, PathError> {
        self.at(&RelPath::new(name.as_bytes())?)
    }

    /// The directory at a path beneath it.
    ///
    /// # Errors
    /// Those of a path that is longer than one may be.
    pub fn at(self, below: &RelPath) -> Result<CampaignPlace, PathError> {
        Ok(match self {
            CampaignPlace::Here(top) => CampaignPlace::Here(beneath(&top, below)),
            CampaignPlace::Daemon { host, port, path } => {
                let path = RemotePath { path: path.path.concat(below)?, ..path };
                CampaignPlace::Daemon { host, port, path }
            }
        })
    }

    /// All that lies in it, as the source of a transfer.
    pub fn contents(&self) -> JobSource {
        match self {
            CampaignPlace::Here(path) => JobSource::Local(vec![LocalSource::contents(path)]),
            CampaignPlace::Daemon { host, port, path } => {
                JobSource::Remote(reach(host, *port), vec![RemotePath { slash: true, ..path.clone() }])
            }
        }
    }

    /// The destination of a transfer to it.
    pub fn receiving(&self) -> JobDestination {
        match self {
            CampaignPlace::Here(path) => JobDestination::Local(LocalDest::directory(path)),
            CampaignPlace::Daemon { host, port, path } => {
                JobDestination::Remote(reach(host, *port), RemotePath { slash: true, ..path.clone() })
            }
        }
    }

    /// The name of its site.
    pub fn site(&self) -> String {
        match self {
            CampaignPlace::Here(_) => HERE.to_owned(),
            CampaignPlace::Daemon { host, port, .. } => host_port(host, *port),
        }
    }

    /// The location, as a user writes it, escaped.
    pub fn shown(&self) -> String {
        match self {
            CampaignPlace::Here(path) => longhaul_core::Escaped(path.as_os_str().as_encoded_bytes()).to_string(),
            CampaignPlace::Daemon { host, port, path } => {
                let below = if path.path.is_root() { String::new() } else { format!("/{}", path.path.escaped()) };
                format!("lh://{}/{}{below}", host_port(host, *port), path.root)
            }
        }
    }
}

/// The path of this host at which a name lies.
pub fn beneath(top: &Path, name: &RelPath) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    if name.is_root() { top.to_owned() } else { top.join(std::ffi::OsStr::from_bytes(name.as_bytes())) }
}

fn reach(host: &str, port: u16) -> Reach {
    Reach::Address { host: host.to_owned(), port }
}

/// The name of the site of directories of this host.
pub const HERE: &str = "this host";

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(path: impl Into<PathBuf>) -> CampaignSpec {
        let source = CampaignSource {
            top: CampaignPlace::Here(path.into()),
            only: None,
            onto: RelPath::new("name\n\u{e9}").unwrap(),
        };
        let to = CampaignPlace::Here("/to".into());
        CampaignSpec::new(vec![source], to, Settings::default(), ShardBounds { files: Some(3), bytes: None })
    }

    #[test]
    fn a_spec_comes_back_from_its_bytes_and_another_version_is_refused() {
        let bytes = spec("/from").encode().unwrap();
        let read = CampaignSpec::decode(&bytes).unwrap();
        assert_eq!((read.bounds.files, read.sources[0].shown().as_str()), (Some(3), "/from"));
        let JobDestination::Local(to) = read.job(0).unwrap().to else { panic!("it is of this host") };
        assert_eq!(to.path, Path::new("/to/name\n\u{e9}"));
        assert_eq!(read.keys, CampaignKeys::default());
        let keys = CampaignKeys { identity: Some("/keys/mine".into()), trust_on_first_use: true, ..read.keys.clone() };
        let met = CampaignSpec::decode(&read.met_with(keys.clone()).encode().unwrap()).unwrap();
        assert_eq!(met.keys, keys);
        let newer = String::from_utf8(bytes).unwrap().replace("\"version\":1", "\"version\":4");
        assert!(CampaignSpec::decode(newer.as_bytes()).unwrap_err().message.contains("version 4"));
        assert!(CampaignSpec::decode(b"{}").is_err());
    }

    #[test]
    fn shards_of_a_dataset_go_beneath_its_name_and_an_older_program_does_not_read_it() {
        let name = DatasetName::new("run-7").unwrap();
        assert!(spec("/from").commit().is_none());
        let bytes = spec("/from").as_dataset(Some(name.clone())).encode().unwrap();
        assert!(String::from_utf8(bytes.clone()).unwrap().contains("\"version\":2"));
        let read = CampaignSpec::decode(&bytes).unwrap();
        assert_eq!((read.shown_to().as_str(), spec("/from").shown_to().as_str()), ("/to/run-7", "/to"));
        let (shard, commit) = (read.job(0).unwrap(), read.commit().unwrap());
        let onto = RelPath::new("name\n\u{e9}").unwrap();
        assert_eq!((shard.dataset, shard.part), (Some(name.clone()), Some(DatasetPart::Shard { onto })));
        assert_eq!((commit.dataset, commit.part), (Some(name), Some(DatasetPart::Commit)));
        for to in [shard.to, commit.to] {
            let JobDestination::Local(to) = to else { panic!("it is of this host") };
            assert_eq!(to.path, Path::new("/to"));
        }
    }

    #[test]
    fn a_campaign_whose_source_dials_has_a_version_of_its_own_and_others_keep_their_bytes() {
        let usual = spec("/from").encode().unwrap();
        assert_eq!(spec("/from").dialled_by(Dialler::Destination).encode().unwrap(), usual);
        assert!(!String::from_utf8(usual).unwrap().contains("dialler"));
        let bytes = spec("/from").as_dataset(None).dialled_by(Dialler::Source).encode().unwrap();
        assert!(String::from_utf8(bytes.clone()).unwrap().contains("\"version\":3"));
        let read = CampaignSpec::decode(&bytes).unwrap();
        assert_eq!(read.job(0).unwrap().dialler, Dialler::Source);
        assert_eq!(spec("/from").job(0).unwrap().dialler, Dialler::Destination);
        assert_eq!(read.dialler(), None, "both of its ends are at this host");
    }

    #[test]
    fn a_source_that_is_not_utf8_is_refused_in_words() {
        use std::os::unix::ffi::OsStringExt;
        let path = PathBuf::from(std::ffi::OsString::from_vec(b"/\xff".to_vec()));
        assert_eq!(spec(path).encode().unwrap_err().code, FaultCode::Usage);
    }

    #[test]
    fn a_campaign_that_was_added_by_an_older_program_is_understood() {
        let read = CampaignSpec::decode(include_bytes!("golden/spec-1.json")).unwrap();
        assert_eq!((read.bounds.files, read.settings.rate), (Some(3), Some(65536)));
        assert_eq!((read.sources[0].shown(), read.site_from()), ("/data/site1/set".to_owned(), HERE.to_owned()));
        assert!(read.job(0).is_some() && !read.needs_key());
    }
}
