//! Further names of files at the receiving doer: which files may get one, and what came of it.
//!
//! Takes orders to make names and the outcomes of entries; starts jobs, or refuses at once. Only a
//! file that this session committed or found equal gets another name, or one that stands with the
//! content of the entry where that may be replaced.

use std::sync::Arc;

use longhaul_core::FileId;
use longhaul_core::RelPath;
use longhaul_core::digest::Hash32;
use longhaul_proto::receiver::{EntryRef, Named, SkippedDigests};
use longhaul_proto::wire::message::Outcome;

use super::book::text;
use super::job::{Job, Then};
use super::{RecvSession, stamp_of};
use crate::env::Env;
use crate::fs::{Node, Op};

impl RecvSession {
    /// Makes an entry another name of the file at `first`.
    pub(super) fn make_name(&mut self, env: &mut Env, held: &Arc<EntryRef>, first: &RelPath) {
        let (path, first) = (text(&held.placed), text(first));
        let names = &env.fs.cached().names;
        let Some(Node::File(ino)) = names.get(&first).cloned() else {
            return self.start_job(env, Job::new(Then::NotNamed(held.id, Named::Refused)));
        };
        let known = self.roots.named.get(&ino).copied();
        let is_one = names.get(&path) == Some(&Node::File(ino));
        let needs_root = env.plan.terms.digests != SkippedDigests::Unwanted;
        let stamp = stamp_of(held);
        let is_offered = stamp.is_some_and(|stamp| env.shows(&first, &path, stamp));
        if is_one && is_offered {
            let named = Named::Stood(known.flatten());
            return self.start_job(env, Job::new(Then::NotNamed(held.id, named)));
        }
        let may = match known {
            Some(_) => is_offered,
            None => env.plan.terms.may_modify && !needs_root && is_offered,
        };
        if !may {
            return self.start_job(env, Job::new(Then::NotNamed(held.id, Named::Refused)));
        }
        let temp = self.small_temp(env, held, 0);
        self.temps.entry(held.id).and_modify(|made| made.ino = ino);
        let job = self.naming(Job::new(Then::Named(held.id, known.flatten())), std::slice::from_ref(held));
        self.start_job(env, job.op(Op::Name { file: first, name: temp.name }));
    }

    /// A name is made, or not.
    pub(super) fn named(&mut self, env: &mut Env, file: FileId, named: Named) {
        if !matches!(named, Named::Staged(_)) {
            self.temps.remove(&file);
        }
        self.machine.handle_name(env.clock.now(), file, named);
    }

    /// Remembers a file that may get other names.
    pub(super) fn remember_names(&mut self, env: &Env, held: &EntryRef, outcome: &Outcome) {
        let root: Option<Hash32> = match outcome {
            Outcome::Committed(root) => *root,
            Outcome::Equal(root) => Some(*root),
            _ => return,
        };
        if held.entry.meta.names.is_some()
            && let Some(ino) = env.fs.cached().file(&text(&held.placed))
        {
            self.roots.named.insert(ino, root);
        }
    }
}
