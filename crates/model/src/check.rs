//! The conditions that a spec must satisfy before anything is computed with it.
//!
//! Metadata is checked key by key when it is read; here are the conditions on numbers together. A
//! spec that passes can be bound, planned and executed without a division by zero, an overflow, or
//! a shape that kernels refuse.

mod alt_up;
mod experts;
mod indexer;
mod join;
mod ngrams;
mod state_spaces;
mod streams;

use std::ops::Range;

use atta_kernels::{D_HEAD_MAX, D_KEY_MAX};

use crate::{
    Error,
    spec::{
        Activation, Attention, DeltaNet, Ffn, KvSource, Latent, LayerSpec, Mask, Mixer, ModelSpec,
        NetDecay, Norm, OutputGate, Outputs, Positions, Presence, QkNorm, Rope, RopeScaling,
        ShortConv, Sublayer, Temperature, TokenTypes, Wiring, Yarn,
    },
};

/// No width of a real model comes near this.
const MAX_WIDTH: usize = 1 << 24;

/// No short convolution is longer.
const MAX_TAPS: usize = 64;

/// No real model has more layers.
pub(crate) const MAX_LAYERS: usize = 4096;

impl ModelSpec {
    /// Refuses a spec that describes no model.
    ///
    /// # Errors
    /// [`Error::Spec`], which names the layer and the numbers.
    pub fn check(&self) -> Result<(), Error> {
        let n_layers = self.layers.len();
        require((1..=MAX_LAYERS).contains(&n_layers), || {
            format!("{n_layers} layers, expected 1 to {MAX_LAYERS}")
        })?;
        require(is_width(self.d_model), || {
            format!("d_model of {}", self.d_model)
        })?;
        require(is_width(self.n_vocab), || {
            format!("a vocabulary of {}", self.n_vocab)
        })?;
        require(self.n_ctx_train > 0, || {
            "trained for no positions".to_owned()
        })?;
        require(self.positions != Positions::Learned(0), || {
            "no learned positions".to_owned()
        })?;
        require(self.token_types != TokenTypes::Learned(0), || {
            "no learned types of tokens".to_owned()
        })?;
        self.check_streams()?;
        self.check_join()?;
        self.check_outputs()?;
        let layers = self.layers.iter().enumerate();
        for (l, layer) in layers.filter(|(_, layer)| !layer.is_left_out()) {
            layer
                .check(self.d_model)
                .map_err(|what| Error::Spec(format!("layer {l}: {what}")))?;
        }
        self.check_ngrams()?;
        self.check_kv_layers()?;
        self.check_alt_up()?;
        if let Some(embed) = &self.layer_embed {
            let d_all = embed.d.checked_mul(n_layers);
            require(embed.d > 0 && d_all.is_some_and(is_width), || {
                format!("embeddings of {} in {n_layers} layers", embed.d)
            })?;
            require(is_positive(embed.eps), || {
                format!("norms of embeddings with {}", embed.eps)
            })?;
            require(
                !matches!(embed.activation, Activation::Clamped { .. }),
                || "a clamped gate of embeddings".to_owned(),
            )?;
        }
        let mut long = self.ropes().filter_map(|r| match r.scaling {
            RopeScaling::Long { factors, .. } => Some(factors),
            _ => None,
        });
        let first = long.next();
        require(long.all(|factors| Some(factors) == first), || {
            "rope factors that only some layers must have".to_owned()
        })?;
        self.check_factors(|r| r.factors != Presence::Absent)?;
        self.check_factors(|r| matches!(r.scaling, RopeScaling::Long { .. }))
    }

    /// Only a model that sees no position ahead can predict the next token, and only one that sees
    /// all in some layers has a token that stands for the text.
    fn check_outputs(&self) -> Result<(), Error> {
        let is_encoder = self.is_encoder();
        require(
            !is_encoder || self.layers.iter().all(LayerSpec::sees_ahead),
            || "layers that see positions behind their own beside others".to_owned(),
        )?;
        let fits = match self.head.outputs {
            Outputs::Logits => !is_encoder,
            Outputs::Hidden => true,
            Outputs::Dense(dense) => is_width(dense.d_inner) && is_width(dense.d_out),
            Outputs::Scores(head) => is_encoder && is_width(head.n),
        };
        require(fits, || {
            format!(
                "{:?} of a model whose encoder is {is_encoder}",
                self.head.outputs
            )
        })
    }

    /// A layer attends to the keys and values of an earlier one that has its own, in heads of the
    /// same sizes, and of no other positions than that layer keeps.
    fn check_kv_layers(&self) -> Result<(), Error> {
        for (l, layer) in self.layers.iter().enumerate() {
            let Some((a, from)) = layer.attention().and_then(|a| Some((a, a.kv_layer()?))) else {
                continue;
            };
            let other = self.layers[..l].get(from).and_then(LayerSpec::attention);
            let is_like = |other: &&Attention| {
                matches!(other.kv, KvSource::Own { .. })
                    && (a.n_kv_heads, a.d_head, a.mask)
                        == (other.n_kv_heads, other.d_head, other.mask)
            };
            require(other.filter(is_like).is_some(), || {
                format!("layer {l}: the keys and values of layer {from}")
            })?;
        }
        Ok(())
    }

    /// Checks that these layers can be computed apart from the others: none attends to keys and
    /// values of a layer outside, or lacks tokens or streams that only the first ones have.
    ///
    /// # Errors
    /// [`Error::Options`] if they cannot.
    pub fn check_separable(&self, layers: &Range<usize>) -> Result<(), Error> {
        let kv_layers = self.layers[layers.clone()].iter();
        let mut kv_layers = kv_layers.filter_map(|layer| layer.attention()?.kv_layer());
        let splits_ngrams = |(l, _)| {
            [layers.start, layers.end]
                .iter()
                .any(|cut| (1..=l).contains(cut))
        };
        let what = if self.alt_up.is_some() && layers.len() < self.layers.len() {
            "several streams of the residual"
        } else if self.ngrams().is_some_and(splits_ngrams) {
            "embeddings of n-grams, whose tokens only the first layers have"
        } else if kv_layers.any(|l| !layers.contains(&l)) {
            "keys and values that layers share"
        } else {
            return Ok(());
        };
        Err(Error::Options(format!(
            "layers {layers:?} alone, of a model with {what}"
        )))
    }

    /// Whether another machine than that of the layers before `l`, or of the embedding, can compute
    /// layer `l` and those behind it.
    pub fn may_cut_before(&self, l: usize) -> bool {
        let n = self.layers.len();
        let parts = [0..l.min(n), l.min(n)..n, n..n];
        (l > 0 || self.ngrams().is_none())
            && parts.iter().all(|part| self.check_separable(part).is_ok())
    }

    /// All layers share a tensor of rope factors, so that those with factors rotate as many
    /// elements.
    fn check_factors(&self, has_factors: fn(&Rope) -> bool) -> Result<(), Error> {
        let mut widths = self.ropes().filter(|r| has_factors(r)).map(|r| r.d_rope);
        let first = widths.next();
        require(widths.all(|d| Some(d) == first), || {
            "rope factors of different lengths".to_owned()
        })
    }
}

impl LayerSpec {
    /// Whether it sees positions behind a row's own; not in layers whose state is of the past.
    fn sees_ahead(&self) -> bool {
        self.attention().is_some_and(|a| a.mask.sees_ahead())
    }

    fn check(&self, d_model: usize) -> Result<(), String> {
        match &self.mixer {
            Mixer::None => {}
            Mixer::Attention(attention) => attention.check()?,
            Mixer::ShortConv(conv) => conv.check(d_model)?,
            Mixer::DeltaNet(net) => net.check()?,
            Mixer::Mamba(mamba) => mamba.check()?,
            Mixer::Mamba2(mamba) => mamba.check()?,
            Mixer::AttentionAndMamba2(both) => both.check()?,
        }
        self.check_sublayers()?;
        self.check_laurel()?;
        self.check_sparse()?;
        self.check_mlp()?;
        self.moe().map_or(Ok(()), |moe| moe.check(d_model))?;
        if let Ffn::MlpAndMoe(both) = &self.ffn {
            both.check()?;
            ensure(matches!(self.wiring, Wiring::Sequential { .. }), || {
                "an MLP beside experts in a parallel layer".to_owned()
            })?;
        }
        let sublayers = [Sublayer::Mixer, Sublayer::Ffn];
        let mut inner = sublayers
            .map(|sublayer| [self.post_norm(sublayer), self.sub_norm(sublayer)])
            .into_iter()
            .flatten()
            .flatten();
        ensure(inner.all(|norm| matches!(norm, Norm::Rms { .. })), || {
            "a LayerNorm within a block or behind it".to_owned()
        })
    }

    /// A layer of one sublayer has no norms of the other, and is sequential.
    fn check_sublayers(&self) -> Result<(), String> {
        let lacks_mixer = self.mixer == Mixer::None;
        let lacks_ffn = self.ffn == Ffn::None;
        let missing = match (lacks_mixer, lacks_ffn) {
            (true, _) => Sublayer::Mixer,
            (_, true) => Sublayer::Ffn,
            _ => return Ok(()),
        };
        let norms = [self.pre_norm(missing), self.post_norm(missing)];
        let is_sequential = matches!(self.wiring, Wiring::Sequential { .. });
        ensure(is_sequential && norms == [None; 2], || {
            format!("no {missing:?}, but norms of it")
        })
    }

    fn check_mlp(&self) -> Result<(), String> {
        let Some(mlp) = self.mlp() else {
            return Ok(());
        };
        ensure(is_width(mlp.d_ff), || format!("d_ff of {}", mlp.d_ff))?;
        if let Activation::Clamped { alpha, limit } = mlp.activation {
            ensure(is_positive(alpha) && is_positive(limit), || {
                format!("a gate clamped to {limit}, alpha {alpha}")
            })?;
            ensure(!matches!(self.ffn, Ffn::Plain(_)), || {
                "a clamped gate where there is none".to_owned()
            })?;
        }
        if let Activation::Xielu(f) = mlp.activation {
            let numbers = [f.alpha_p, f.alpha_n, f.beta, f.eps];
            ensure(numbers.into_iter().all(f32::is_finite), || format!("{f:?}"))?;
        }
        Ok(())
    }
}

impl Attention {
    fn check(&self) -> Result<(), String> {
        let Self {
            n_heads,
            n_kv_heads,
            d_head,
            ..
        } = *self;
        let shares = n_heads > 0 && n_kv_heads > 0 && n_heads.is_multiple_of(n_kv_heads);
        ensure(shares, || {
            format!("{n_heads} heads share {n_kv_heads} key-value heads")
        })?;
        ensure((1..=D_HEAD_MAX).contains(&d_head), || {
            format!("heads of {d_head}, expected 1 to {D_HEAD_MAX}")
        })?;
        ensure(n_heads.checked_mul(d_head).is_some_and(is_width), || {
            format!("{n_heads} heads of {d_head}")
        })?;
        if let KvSource::Own {
            v_norm: Some(eps), ..
        } = self.kv
        {
            ensure(is_positive(eps), || format!("a norm of values with {eps}"))?;
        }
        if let KvSource::Latent(latent) = &self.kv {
            latent.check(self)?;
        }
        let projects_all = matches!(
            self.kv,
            KvSource::Own {
                v_proj: Presence::Required,
                ..
            }
        );
        ensure(self.gate != OutputGate::Heads || projects_all, || {
            "a gate per head beside keys or values without a projection".to_owned()
        })?;
        ensure(self.slopes.is_none_or(is_positive), || {
            format!("slopes down to 2^-{:?}", self.slopes)
        })?;
        let is_empty = matches!(self.mask, Mask::Window(0) | Mask::Chunk(0));
        ensure(!is_empty, || "a window of no positions".to_owned())?;
        let never = self
            .temperature
            .is_some_and(|Temperature { n_ctx_orig, .. }| n_ctx_orig == 0);
        ensure(!never, || {
            "a temperature that changes every 0 positions".to_owned()
        })?;
        self.indexer.map_or(Ok(()), |indexer| indexer.check(self))?;
        self.rope.as_ref().map_or(Ok(()), |rope| rope.check(d_head))
    }
}

impl Latent {
    /// Checks it as the source of keys and values of `a`.
    fn check(&self, a: &Attention) -> Result<(), String> {
        let d_latent = self.d_latent;
        let fits = (1..a.d_head).contains(&d_latent) && a.n_kv_heads == 1;
        ensure(fits, || {
            format!("{} heads of {}, {d_latent} latent", a.n_kv_heads, a.d_head)
        })?;
        let d_rope = a.d_head - d_latent;
        ensure(d_rope.is_multiple_of(2), || {
            format!("{d_rope} elements of a key before its latent vector")
        })?;
        let rotated = a.rope.as_ref().map_or(d_rope, |rope| rope.d_rope);
        ensure(rotated == d_rope, || {
            format!("a rotation of {rotated} elements of {d_rope}")
        })?;
        self.check_widths(a)?;
        let is_plain = a.qk_norm == QkNorm::None
            && a.gate == OutputGate::None
            && a.sub_norm.is_none()
            && a.slopes.is_none()
            && a.qkv_bias == Presence::Absent;
        ensure(is_plain, || {
            "latent attention with norms of heads, a gate, slopes or biases".to_owned()
        })
    }

    fn check_widths(&self, a: &Attention) -> Result<(), String> {
        let widths = [self.d_key, self.d_value].map(|d| {
            let whole = d.checked_add(a.d_head)?;
            whole.checked_mul(a.n_heads).filter(|_| d > 0)
        });
        let fits = widths.iter().all(|d| d.is_some_and(is_width));
        ensure(fits && self.d_query.is_none_or(is_width), || {
            format!("{} heads of {self:?}", a.n_heads)
        })?;
        ensure(is_positive(self.eps), || format!("norms with {}", self.eps))
    }
}

impl ShortConv {
    fn check(&self, d_model: usize) -> Result<(), String> {
        check_taps(self.n_taps)?;
        ensure(is_width(Self::N_INPUTS * d_model), || {
            format!("a short convolution of a d_model of {d_model}")
        })
    }
}

fn check_taps(n_taps: usize) -> Result<(), String> {
    ensure((2..=MAX_TAPS).contains(&n_taps), || {
        format!("a short convolution of {n_taps} positions, expected 2 to {MAX_TAPS}")
    })
}

impl DeltaNet {
    fn check(&self) -> Result<(), String> {
        let Self {
            n_heads,
            n_key_heads,
            d_key,
            d_value,
            ..
        } = *self;
        check_taps(self.n_taps)?;
        check_scan([n_heads, n_key_heads, d_key, d_value])?;
        let ranks = self.ranks();
        let lacks_rank = self.gate_rank == Some(0) || self.decay == NetDecay::Channels { rank: 0 };
        let fits = ranks.into_iter().all(|rank| rank == 0 || is_width(rank));
        ensure(!lacks_rank && fits, || {
            format!("gates and decays from vectors of {ranks:?}")
        })?;
        let epsilons = [self.l2_eps, self.eps];
        ensure(epsilons.into_iter().all(is_positive), || {
            format!("norms with {epsilons:?}")
        })
    }
}

/// Sizes of linear attention: heads, heads of keys, width of a key and of a value.
fn check_scan([n_heads, n_key_heads, d_key, d_value]: [usize; 4]) -> Result<(), String> {
    let shares = n_heads > 0 && n_key_heads > 0 && n_heads.is_multiple_of(n_key_heads);
    ensure(shares, || {
        format!("{n_heads} heads share {n_key_heads} heads of keys")
    })?;
    ensure((1..=D_KEY_MAX).contains(&d_key), || {
        format!("keys of {d_key}, expected 1 to {D_KEY_MAX}")
    })?;
    // A head's state is no wider than a model.
    let widths = [n_heads.checked_mul(d_value), n_heads.checked_mul(d_key)];
    let fits = widths
        .into_iter()
        .all(|d| d.is_some_and(|d| is_width(4 * d)));
    ensure(fits, || {
        format!("{n_heads} heads of {d_value}, keys of {d_key}")
    })
}

impl Rope {
    fn check(&self, d_head: usize) -> Result<(), String> {
        let d_rope = self.d_rope;
        let fits = d_rope > 0 && d_rope.is_multiple_of(2) && d_rope <= d_head;
        ensure(fits, || {
            format!("a rotation of {d_rope} elements of {d_head}")
        })?;
        ensure(is_positive(self.base), || {
            format!("a rope base of {}", self.base)
        })?;
        ensure(is_positive(self.magnitude), || {
            format!("a rope magnitude of {}", self.magnitude)
        })?;
        match self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => {
                ensure(is_positive(factor), || format!("a rope factor of {factor}"))
            }
            RopeScaling::Dynamic { n_ctx_orig: 0, .. }
            | RopeScaling::Long { n_ctx_orig: 0, .. } => {
                Err("an original context of no positions".to_owned())
            }
            RopeScaling::Dynamic { factor, .. } => {
                let fits = factor >= 1.0 && factor.is_finite() && d_rope > 2;
                ensure(fits, || {
                    format!("a dynamic rope factor of {factor} for {d_rope} elements")
                })
            }
            RopeScaling::Long { .. } => Ok(()),
            RopeScaling::Yarn(yarn) => ensure(yarn.is_sound(), || format!("{yarn:?}")),
        }
    }
}

impl Yarn {
    fn is_sound(&self) -> bool {
        self.n_ctx_orig > 0
            && [self.factor, self.beta_fast, self.beta_slow]
                .into_iter()
                .all(is_positive)
    }
}

fn is_positive(x: f32) -> bool {
    x > 0.0 && x.is_finite()
}

fn is_width(d: usize) -> bool {
    (1..=MAX_WIDTH).contains(&d)
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Result<(), Error> {
    ensure(holds, what).map_err(Error::Spec)
}
