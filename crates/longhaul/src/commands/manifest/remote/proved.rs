//! The key that a daemon has proved.
//!
//! In: the keys that daemons show. Out: the first one that was trusted. Must not know records.

use std::sync::{Arc, OnceLock};

use longhaul_core::Fault;
use longhaul_engine::{Credentials, Remote, Trust};
use longhaul_net::PublicKey;

/// Notes the key that a daemon has proved, and has it judged as without this.
pub(super) struct ProvedKey {
    trust: Arc<dyn Trust>,
    key: OnceLock<PublicKey>,
}

impl ProvedKey {
    /// The same daemon, whose key is noted.
    pub(super) fn noted(remote: &Remote) -> (Remote, Arc<ProvedKey>) {
        let credentials = remote.credentials.clone();
        let proved = Arc::new(ProvedKey { trust: credentials.trust.clone(), key: OnceLock::new() });
        let credentials = Credentials { trust: proved.clone(), ..credentials };
        (Remote { credentials, ..remote.clone() }, proved)
    }

    /// The key. `None`: none was trusted yet, or ssh vouches for the host.
    pub(super) fn get(&self) -> Option<&PublicKey> {
        self.key.get()
    }
}

impl Trust for ProvedKey {
    fn judge(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), Fault> {
        self.trust.judge(host, port, key)?;
        let _ = self.key.set(*key);
        Ok(())
    }

    fn hear_ssh(&self, line: &[u8]) {
        self.trust.hear_ssh(line);
    }
}
