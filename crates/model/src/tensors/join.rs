//! The tensors of draft heads, beside those of their layers.

use super::{List, TensorReq};
use crate::{
    Role,
    spec::{Join, JoinKind, Presence},
};

impl List {
    /// What a draft head has beside its layers. It may read the target's embedding.
    pub(super) fn join(&mut self, join: &Join, [d, n_vocab]: [usize; 2]) {
        self.reqs[0].presence = Presence::Optional;
        match join.kind {
            JoinKind::Beside { .. } => {
                self.require(Role::Fc, &[d, join.taps.len() * join.d_target]);
                self.change(Role::Output, |req| req.presence = Presence::Required);
                for role in [Role::AttnQ, Role::AttnK, Role::AttnV] {
                    self.change(role, |req| req.shape[1] = 2 * d);
                }
                self.layer = Some(0);
                self.require(Role::AttnNorm2, &[d]);
            }
            JoinKind::Projected => {
                self.layer = Some(0);
                self.require(Role::NextnEhProj, &[d, 2 * d]);
                self.require(Role::NextnEnorm, &[d]);
                self.require(Role::NextnHnorm, &[d]);
                self.add(Role::NextnEmbedTokens, &[n_vocab, d], Presence::Optional);
                self.add(Role::NextnSharedHeadNorm, &[d], Presence::Optional);
                self.add(Role::NextnSharedHeadHead, &[n_vocab, d], Presence::Optional);
            }
        }
    }

    /// Changes the first tensor of a role.
    fn change(&mut self, role: Role, change: impl FnOnce(&mut TensorReq)) {
        if let Some(req) = self.reqs.iter_mut().find(|req| req.role == role) {
            change(req);
        }
    }
}
