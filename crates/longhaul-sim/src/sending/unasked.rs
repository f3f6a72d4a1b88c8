//! Small files that the sender says before anybody asked for them.
//!
//! Takes the order of the machine; says the files as they are by then, and reports which it said.
//! A file that is not there to be read is left out: its time comes when it is wanted.

use longhaul_core::digest::digest_of;
use longhaul_core::{DigestKind, FileOffset};
use longhaul_proto::Message;
use longhaul_proto::sender::Small;
use longhaul_proto::wire::bundle::{Packer, table_bytes};
use longhaul_proto::wire::message::Unasked;

use super::SendSession;
use crate::env::Env;

impl SendSession {
    /// Says those of the files that are there to be read.
    pub(super) fn pack_unasked(&mut self, env: &mut Env, files: &[Small]) {
        let bytes = files.iter().map(|small| small.len as usize).sum::<usize>();
        let mut bundle = vec![0xee; table_bytes(files.len()) + bytes];
        let (mut packer, mut said) = (Packer::new(&mut bundle, files.len()), Vec::new());
        for Small { file, len, .. } in files {
            let is_there = self.unchanged(env, *file).is_ok() && !env.mishap(env.plan.rates.source_faults);
            let content = &env.source.current(file.0 as usize).1.bytes;
            if let Some(space) = packer.space(*len as usize).filter(|space| is_there && space.len() == content.len()) {
                space.copy_from_slice(content);
                let root = *digest_of(content, DigestKind::Root, FileOffset(0)).bytes();
                packer.keep(*file, content.len(), root);
                said.push((*file, root));
            }
        }
        let (len, kept) = packer.finish();
        if kept > 0 {
            bundle.truncate(len);
            self.say(env, Message::Unasked(Unasked { bundle }));
        }
        self.machine.handle_pack_unasked(said);
    }
}
