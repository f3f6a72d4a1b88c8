//! Small files that came before anybody asked for them.
//!
//! In: their bundle, and the machine's order to drop it or to write some of them. Out: the arrival,
//! as the machine hears of it, and a planted bug: what is not wanted is written all the same.

use std::sync::Arc;

use longhaul_core::digest::digest_of;
use longhaul_core::{Attempt, BundleId, DigestKind, FileOffset, Unit};
use longhaul_proto::receiver::{EntryRef, Landed, Ticket};
use longhaul_proto::wire::data::Piece;

use super::job::{Job, Then};
use super::{Payload, RecvSession};
use crate::env::Env;
use crate::fs::{Node, Op};
use crate::link::{Rows, rows_of};
use crate::mutants::Mutant;

impl RecvSession {
    /// A bundle came over the control connection.
    pub(super) fn comes_unasked(&mut self, env: &mut Env, bundle: Vec<u8>) {
        let len = bundle.len() as u64;
        let piece = Piece {
            unit: Unit::Bundle(BundleId(u64::MAX)),
            attempt: Attempt::FIRST,
            offset: 0,
            len,
            unit_len: len,
            chunk: self.chunk,
            digest: DigestKind::Root,
            hole: false,
            same: false,
            trailer: false,
        };
        let (rows, places) = rows_of(&piece, &bundle);
        let computed = digest_of(&bundle, DigestKind::Root, FileOffset(0));
        let payload = Payload { unit: piece.unit, bytes: Some(bundle), hole: false, rows: places };
        self.arrivals.payloads.insert(Ticket::UNASKED, payload);
        let landed = Landed { ticket: Ticket::UNASKED, piece, computed, declared: None, rows };
        self.machine.handle_unasked(env.clock.now(), landed);
        self.act(env);
    }

    /// For a mutant: writes the files of a bundle that came unasked over what stands under their
    /// names, but for those that are wanted.
    pub(super) fn write_unwanted(
        &mut self,
        env: &mut Env,
        ticket: Ticket,
        (bytes, rows): (&[u8], &Rows),
        wanted: &[Arc<EntryRef>],
    ) {
        if ticket != Ticket::UNASKED || !env.is(Mutant::UnwantedIsWritten) {
            return;
        }
        for (file, range) in rows.iter().filter(|(file, _)| wanted.iter().all(|held| held.id != *file)) {
            let stands = env.fs.cached().names.get(env.source.place(file.0 as usize)).cloned();
            if let Some(Node::File(ino)) = stands {
                let op = Op::Write { ino, offset: 0, bytes: bytes[range.clone()].to_vec() };
                self.start_job(env, Job::new(Then::Nothing).op(op));
            }
        }
    }
}
