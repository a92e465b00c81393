//! `/lora`: which adapters the next answers are written with.

use atta::{AdapterScale, Engine, Session, chat::Chat};

use crate::failure::Failure;

/// The adapters with their scales, one per line.
pub(super) fn list(session: &Session) -> String {
    let infos = session.engine().adapters();
    let scale = |i: usize| {
        let used = session.adapters();
        used.iter().find(|at| at.adapter == i).map(|at| at.scale)
    };
    let line = |i: usize| {
        let name = &infos[i].name;
        match scale(i) {
            Some(scale) => format!("{name}  scale {scale}"),
            None => format!("{name}  not in use"),
        }
    };
    let lines: Vec<String> = (0..infos.len()).map(line).collect();
    match lines.is_empty() {
        true => "no adapter is loaded: see --lora".to_owned(),
        false => lines.join("\n"),
    }
}

/// Uses these adapters, each given as NAME or NAME:SCALE, and no others. The conversation stays,
/// and is evaluated again.
pub(super) fn choose(chat: &mut Chat, names: &[&str]) -> Result<(), Failure> {
    let engine = chat.session().engine().clone();
    let scales = names.iter().map(|name| scale(&engine, name));
    let scales = scales.collect::<Result<Vec<_>, _>>()?;
    chat.set_adapters(engine.adapter_set(&scales)?)?;
    Ok(())
}

fn scale(engine: &Engine, text: &str) -> Result<AdapterScale, atta::Error> {
    let scaled = text.rsplit_once(':');
    let scaled = scaled.and_then(|(name, scale)| Some((name, scale.parse().ok()?)));
    let (name, scale) = scaled.unwrap_or((text, 1.0));
    let adapter = engine.adapter_named(name)?;
    Ok(AdapterScale { adapter, scale })
}
