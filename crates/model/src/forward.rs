//! The forward pass on the CPU: the one that runs every model.
//!
//! ```text
//! x = norm(embed[token] * embed_scale + position[pos] + type)
//!                                               of several residual streams: blocks/streams.rs
//! x = join(x, h)                                if it is a draft head: blocks/join.rs
//! for each layer:  x += ngrams(tokens, x)       if it has embeddings of n-grams
//!                  x += mixer(norm(x))
//!                  x = (x + laurel) / sqrt(2)    if it has a low-rank layer, of the same norm(x)
//!                  x += ffn(norm(x))
//!                  x += layer_embed[token]       if there are such embeddings
//!                  x *= out_scale                if the layer has one
//! logits = softcap(logit_scale * (W_head norm(x) + b))    or, of an encoder, x itself
//! ```
//! Of several streams of the residual, `x` is the one that a layer reads (`blocks/alt_up.rs`).
//!
//! The spec describes what a layer computes; nothing here depends on an architecture, on where
//! weights lie, or on how many sequences the rows belong to. Logits are bit-equal for any batch,
//! thread count and chunking, because every row is computed by the same operations in the same
//! order.

use std::ops::Range;

use atta_kernels::{Job, Kernels, Store, math::tanh};
use atta_store::{WeightGroup, WeightPass};

use crate::{
    Batch, Cpu, Error, Executor, Input, Model, Output, Phase, Role, Row, Share, Want,
    adapters::Adapting,
    blocks::{
        Normalize, Pass, RowNorm, Scratch, Taps, add_laurel, add_ngrams, add_to_other_streams,
        attention, begin_alt_up, begin_streams, correct_streams, delta_net, end_alt_up,
        end_streams, enter_streams, gated_mlp, join_states, laurel, layer_embedding, layer_inputs,
        mamba, mamba2, mlp_and_moe, moe, plain_mlp, predict_streams, scale_residual, short_conv,
        sparse_mlp,
    },
    members::Products,
    spec::{Ffn, Head, Mixer, ModelSpec, Norm, Sublayer},
};

/// Rows of the embedding that are read at once.
const EMBED_ROWS: usize = 32;

impl Cpu {
    /// Computes the admitted rows of a batch.
    pub(crate) fn run(&mut self, batch: &Batch, out: &mut Output) -> Result<(), Error> {
        self.observer.enter(Phase::Weights);
        let wants_head = batch.rows.iter().any(|r| r.want == Want::Logits);
        self.model.weights().begin(&WeightPass {
            layers: self.layers.clone(),
            wants_head,
        })?;
        self.observer.enter(Phase::Other);
        self.ropes.prepare(batch.rows.iter().map(|r| r.pos));
        if self.info().part.embed {
            self.embed(batch)?;
        } else {
            self.take_hidden(batch);
        }
        // As in transformers, an embedding that comes without a token has that of its placeholder.
        let placeholder = self.model.spec().placeholder();
        self.ids.clear();
        self.ids.extend(
            batch
                .rows
                .iter()
                .map(|row| row.token().unwrap_or(placeholder)),
        );
        let Share {
            embed: embeds,
            head: has_head,
            ..
        } = self.info().part;
        let mut pass = Pass {
            model: &self.model,
            kernels: self.kernels,
            pool: &self.pool,
            products: Products::new(self.kernels, &self.pool, self.members.as_mut()),
            adapting: Adapting::new(
                self.kernels,
                &self.pool,
                self.model.adapters(),
                &batch.rows,
                &mut self.adapter_scratch,
            ),
            rows: &batch.rows,
            steps: &self.steps,
            runs: &self.runs,
            cache: &mut self.cache,
            ropes: &self.ropes,
            s: &mut self.scratch,
            observer: self.observer.as_mut(),
            taps: Taps::new(batch, self.model.spec().d_model, out),
        };
        if let Some(join) = &self.model.spec().join {
            join_states(&mut pass, join, &batch.hidden)?;
        }
        let layer_embed = self.model.spec().layer_embed;
        if embeds {
            if let Some(embed) = &layer_embed {
                layer_inputs(&mut pass, embed, &self.ids)?;
            }
            begin_streams(&mut pass);
        }
        through_layers(&mut pass, self.layers.clone(), &self.ids)?;
        if has_head {
            end_streams(&mut pass)?;
            pass.tap_normed();
            self.observe_head(batch.rows.len());
        }
        self.emit(&batch.rows, out)?;
        Ok(self.model.weights().end()?)
    }

    /// `x = norm(embed[token] * embed_scale + position[pos] + type)`; the embedding of a row with
    /// one takes the place of the product.
    fn embed(&mut self, batch: &Batch) -> Result<(), Error> {
        self.embed_tokens(batch)?;
        let d = self.model.spec().d_model;
        let t = self.model.globals();
        let positions = t.vector_opt(Role::PositionEmbd);
        let types = t.vector_opt(Role::TokenTypes);
        let last_type = self.model.spec().token_types.n_rows().saturating_sub(1);
        let rows = self.scratch.x.chunks_exact_mut(d).zip(&batch.rows);
        for (x, row) in rows {
            if let Input::Embedding(i) = row.input {
                x.copy_from_slice(&batch.hidden[i * d..(i + 1) * d]);
            }
            if let Some(table) = positions {
                self.kernels
                    .add_assign(x, &table[row.pos * d..(row.pos + 1) * d]);
            }
            if let Some(table) = types {
                let i = (row.segment as usize).min(last_type);
                self.kernels.add_assign(x, &table[i * d..(i + 1) * d]);
            }
        }
        self.norm_embeddings(batch.rows.len());
        Ok(())
    }

    /// Shows the inputs of the head to an observer that wants them.
    fn observe_head(&mut self, n_rows: usize) {
        if !self.observer.wants_head_inputs() {
            return;
        }
        let d = self.model.spec().d_model;
        let mut normed = vec![0.0; d];
        for x in self.scratch.x.chunks_exact(d).take(n_rows) {
            self.model.output_norm(self.kernels, x, &mut normed);
            self.observer.head_input(&normed);
        }
    }

    /// `x = norm(x)`, if the model normalizes its embeddings.
    fn norm_embeddings(&mut self, n_rows: usize) {
        let Some(norm) = self.model.spec().embed_norm else {
            return;
        };
        let d = self.model.spec().d_model;
        let t = self.model.globals();
        let affine = t.affine([Role::TokenEmbdNorm, Role::TokenEmbdNormBias]);
        let s = &mut self.scratch;
        let n = n_rows * d;
        let x = &mut s.x[..n];
        RowNorm { norm, affine }.apply(self.kernels, &self.pool, x, &mut s.y[..n]);
    }

    /// `x = embed[token] * embed_scale` of the rows with tokens.
    fn embed_tokens(&mut self, batch: &Batch) -> Result<(), Error> {
        let model = self.model.embedder();
        let scale = model.spec().embed_scale;
        let d = model.spec().d_model;
        self.ids.clear();
        self.ids.extend(batch.rows.iter().filter_map(Row::token));
        let mean = model.globals().vector_opt(Role::TokenEmbdMean);
        let mut rows = batch.rows.iter().zip(self.scratch.x.chunks_exact_mut(d));
        for ids in self.ids.chunks(EMBED_ROWS) {
            self.observer.enter(Phase::Weights);
            let table = model.weights().chunk(WeightGroup::EmbedRows(ids), 0)?;
            self.observer.enter(Phase::Other);
            let tokens = rows.by_ref().filter(|(row, _)| row.token().is_some());
            for (i, (_, x)) in tokens.take(ids.len()).enumerate() {
                self.kernels.decode_row(model.embedding(&table, i), 0, x);
                if let Some(mean) = mean {
                    self.kernels.add_assign(x, mean);
                }
            }
        }
        self.adapt_embeddings(&batch.rows);
        if scale != 1.0 {
            let rows = batch.rows.iter().zip(self.scratch.x.chunks_exact_mut(d));
            rows.filter(|(row, _)| row.token().is_some())
                .for_each(|(_, x)| x.iter_mut().for_each(|x| *x *= scale));
        }
        Ok(())
    }

    /// Adds the adapters' parts to the embeddings of tokens.
    fn adapt_embeddings(&mut self, rows: &[Row]) {
        let mut adapting = Adapting::new(
            self.kernels,
            &self.pool,
            self.model.adapters(),
            rows,
            &mut self.adapter_scratch,
        );
        adapting.add_to_embeddings(&mut self.scratch.x, |t| rows[t].token());
    }

    /// `x =` the residual of each row, and the inputs of all layers behind it.
    fn take_hidden(&mut self, batch: &Batch) {
        let d_inputs = self.model.spec().d_layer_inputs();
        let d_row = self.model.spec().d_residual();
        let d = d_row - d_inputs;
        for (t, row) in batch.rows.iter().enumerate() {
            if let Input::Hidden(i) = row.input {
                let (x, inputs) = batch.hidden[i * d_row..][..d_row].split_at(d);
                self.scratch.residual()[t * d..][..d].copy_from_slice(x);
                self.scratch.layer_inputs[t * d_inputs..][..d_inputs].copy_from_slice(inputs);
            }
        }
    }

    /// Width of the hidden states that rows may want.
    pub(crate) fn d_hidden(&self) -> usize {
        let spec = self.model.spec();
        match self.info().part.head {
            true => spec.d_model,
            false => spec.d_residual(),
        }
    }

    /// Writes the results that rows want: `logits = softcap(logit_scale * (W norm(x) + b))`, or the
    /// residual.
    fn emit(&mut self, rows: &[Row], out: &mut Output) -> Result<(), Error> {
        let d_hidden = self.d_hidden();
        let model = &self.model;
        let kernels = self.kernels;
        let s = &mut self.scratch;
        let spec = model.spec();
        out.prepare(rows, spec.n_logits(), d_hidden);
        let d = model.spec().d_model;
        emit_hidden(s, rows, spec, out);
        // The ids are no longer needed; their memory now holds the rows that want logits.
        self.ids.clear();
        self.ids
            .extend((0..rows.len() as u32).filter(|&t| rows[t as usize].want == Want::Logits));
        if self.ids.is_empty() {
            return Ok(());
        }
        let globals = model.globals();
        let weights = model.weights();
        let wanted = &self.ids;
        let x = &s.x;
        s.act.fill(
            kernels,
            &self.pool,
            (wanted.len(), d),
            model.head_layout(),
            |i, h| {
                let t = wanted[i] as usize;
                model.output_norm(kernels, &x[t * d..(t + 1) * d], h);
            },
        );
        for i in 0..weights.n_chunks(WeightGroup::Head) {
            self.observer.enter(Phase::Weights);
            let chunk = weights.chunk(WeightGroup::Head, i)?;
            self.observer.enter(Phase::Matmul);
            let w = model.head(&chunk);
            let bias = globals.vector_opt(Role::OutputBias);
            let mode = Store::Set;
            kernels.matmul(
                &self.pool,
                &s.act,
                &mut [Job {
                    w,
                    bias,
                    out: out.all_logits_mut(),
                    mode,
                }],
            );
        }
        if let Some(members) = &mut self.members {
            members.gather_logits(out.all_logits_mut(), spec.n_logits())?;
        }
        self.observer.enter(Phase::Other);
        add_mean(model, kernels, s, wanted, out);
        let adapters = model.adapters();
        Adapting::new(
            kernels,
            &self.pool,
            adapters,
            rows,
            &mut self.adapter_scratch,
        )
        .add_to_logits(&s.act, out.all_logits_mut(), wanted);
        // Before they are capped, which would make infinity finite.
        out.check_logits();
        spec.head.finish(out.all_logits_mut());
        Ok(())
    }
}

impl Head {
    /// Scales and caps logits.
    pub fn finish(&self, logits: &mut [f32]) {
        if self.logit_scale != 1.0 {
            logits.iter_mut().for_each(|z| *z *= self.logit_scale);
        }
        if let Some(cap) = self.softcap {
            logits.iter_mut().for_each(|z| *z = cap * tanh(*z / cap));
        }
    }
}

/// Adds `m·h` to the logits of each wanted row, where the file has the mean row m of the head
/// apart: its matrix is `W − 1·mᵀ`.
fn add_mean(model: &Model, kernels: Kernels, s: &mut Scratch, wanted: &[u32], out: &mut Output) {
    let Some(mean) = model.head_mean() else {
        return;
    };
    let d = model.spec().d_model;
    s.normed.resize(d, 0.0);
    let logits = out
        .all_logits_mut()
        .chunks_exact_mut(model.spec().n_logits());
    for (logits, &t) in logits.zip(wanted) {
        model.output_norm(kernels, &s.x[t as usize * d..][..d], &mut s.normed);
        let sum = kernels.dot_product(mean, &s.normed);
        logits.iter_mut().for_each(|z| *z += sum);
    }
}

/// Checks the residual of each row, and writes the hidden states that rows want: the residual and
/// the inputs of layers, or of several streams that have ended what the head reads.
fn emit_hidden(s: &mut Scratch, rows: &[Row], spec: &ModelSpec, out: &mut Output) {
    let d_inputs = spec.d_layer_inputs();
    let d_residual = spec.d_residual() - d_inputs;
    // A residual that is not finite stays so whatever layers add: one check at the end is enough.
    let residual = s.residual().chunks_exact(d_residual).take(rows.len());
    residual
        .enumerate()
        .for_each(|(t, x)| out.check_residual(t, x));
    for t in (0..rows.len()).filter(|&t| rows[t].want == Want::Hidden) {
        let d_hidden = out.hidden_mut(t).len();
        if d_hidden < d_residual {
            let x = &s.x[t * d_hidden..][..d_hidden];
            out.hidden_mut(t).copy_from_slice(x);
            out.check_residual(t, x);
            continue;
        }
        let (x, inputs) = out.hidden_mut(t).split_at_mut(d_residual);
        x.copy_from_slice(&s.residual()[t * d_residual..][..d_residual]);
        inputs.copy_from_slice(&s.layer_inputs[t * d_inputs..][..inputs.len()]);
    }
}

/// The layers, and the streams of the residual around them.
fn through_layers(p: &mut Pass<'_>, layers: Range<usize>, ids: &[u32]) -> Result<(), Error> {
    let alt_up = p.model.spec().alt_up;
    if let Some(alt) = &alt_up {
        begin_alt_up(p, alt)?;
    }
    let spec = p.model.spec();
    let end = layers.end;
    for l in spec.computed(layers) {
        p.tap_before(l);
        if let Some(alt) = &alt_up {
            predict_streams(p, l, alt);
        }
        if let Some(ngrams) = &spec.layers[l].ngrams {
            add_ngrams(p, l, ngrams, ids)?;
        }
        sublayers(p, l)?;
        if let Some(alt) = &alt_up {
            correct_streams(p, l, alt);
        }
        add_layer_embedding(p, l)?;
        scale_residual(p, l);
    }
    p.tap_before(end);
    match &alt_up {
        Some(alt) => end_alt_up(p, alt),
        None => Ok(()),
    }
}

/// The sublayers of layer `l`, and the low-rank layer beside the first one.
fn sublayers(p: &mut Pass<'_>, l: usize) -> Result<(), Error> {
    let layer = &p.model.spec().layers[l];
    if let Some(beside) = &layer.laurel {
        laurel(p, l, beside)?;
    }
    enter_streams(p, l, Sublayer::Mixer)?;
    mix(p, l, &layer.mixer)?;
    if layer.laurel.is_some() {
        add_laurel(p);
    }
    enter_streams(p, l, Sublayer::Ffn)?;
    feed_forward(p, l, &layer.ffn)
}

/// Adds the embedding of layer `l`, if there are such embeddings: to the residual, or to the
/// streams that layers do not begin with.
fn add_layer_embedding(p: &mut Pass<'_>, l: usize) -> Result<(), Error> {
    let spec = p.model.spec();
    let Some(embed) = &spec.layer_embed else {
        return Ok(());
    };
    layer_embedding(p, l, embed)?;
    match &spec.alt_up {
        Some(alt) => add_to_other_streams(p, l, alt, embed.eps),
        None => {
            let norm = Norm::Rms { eps: embed.eps };
            p.add_normed(l, Some((norm, Role::PostNorm)), 1.0);
        }
    }
    Ok(())
}

/// The first sublayer of layer `l`.
fn mix(p: &mut Pass<'_>, l: usize, mixer: &Mixer) -> Result<(), Error> {
    match mixer {
        Mixer::None => Ok(()),
        Mixer::Attention(a) => attention(p, l, a),
        Mixer::ShortConv(conv) => short_conv(p, l, conv),
        Mixer::DeltaNet(net) => delta_net(p, l, net),
        Mixer::Mamba(spec) => mamba(p, l, spec),
        Mixer::Mamba2(mamba) => mamba2(p, l, mamba),
        Mixer::AttentionAndMamba2(both) => {
            attention(p, l, &both.attention)?;
            mamba2(p, l, &both.mamba)
        }
    }
}

/// The second sublayer of layer `l`.
fn feed_forward(p: &mut Pass<'_>, l: usize, ffn: &Ffn) -> Result<(), Error> {
    match ffn {
        Ffn::None => Ok(()),
        Ffn::Gated(m) => gated_mlp(p, l, m),
        Ffn::Plain(m) => plain_mlp(p, l, m),
        Ffn::Sparse(m) => sparse_mlp(p, l, m),
        Ffn::Moe(m) => moe(p, l, m),
        Ffn::MlpAndMoe(both) => mlp_and_moe(p, l, both),
    }
}

impl Model {
    /// The mean row of the head, if the file has it apart, `[d_model]`; of the embedding, where
    /// that is the head.
    pub fn head_mean(&self) -> Option<&[f32]> {
        let t = self.globals();
        match t.has_matrix(Role::Output) {
            true => t.vector_opt(Role::OutputMean),
            false => t.vector_opt(Role::TokenEmbdMean),
        }
    }

    /// `norm(x)`, the input of the head, of a residual `x` after the last layer; both `[d_model]`.
    pub fn output_norm(&self, kernels: Kernels, x: &[f32], normed: &mut [f32]) {
        match self.spec().head.norm {
            Some(norm) => {
                let own = self.layer(0).vector_opt(Role::NextnSharedHeadNorm);
                let shared = || {
                    self.globals()
                        .affine([Role::OutputNorm, Role::OutputNormBias])
                };
                let affine = own.map_or_else(shared, |own| (own, None));
                norm.apply(kernels, x, affine, normed);
            }
            None => normed.copy_from_slice(x),
        }
    }
}

impl Row {
    pub(crate) fn token(&self) -> Option<u32> {
        match self.input {
            Input::Token(id)
            | Input::Tapped { token: id, .. }
            | Input::Carried { token: id, .. } => Some(id),
            Input::Embedding(_) | Input::Hidden(_) => None,
        }
    }
}
