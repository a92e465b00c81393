//! `--tools`: tool definitions from a file, and tool calls as lines of JSON.

use atta::{
    chat::ToolUse,
    tools::{ToolCall, ToolChoice, ToolSet},
};
use serde_json::json;

use crate::{args::ToolFlags, failure::Failure, input};

/// The tools of `--tools`, if given.
pub(crate) fn tool_use(flags: &ToolFlags) -> Result<Option<ToolUse>, Failure> {
    let Some(path) = &flags.tools else {
        return Ok(None);
    };
    let tools =
        ToolSet::parse(&input::read_text(path)?).map_err(|error| Failure::at(path, error))?;
    tools
        .remarks()
        .iter()
        .for_each(|remark| crate::load::warn(remark));
    let choice = match &flags.tool_choice {
        Some(choice) => choice
            .parse()
            .map_err(|error| Failure::Usage(format!("--tool-choice: {error}")))?,
        None => ToolChoice::Auto,
    };
    tools
        .check(&choice)
        .map_err(|error| Failure::Failed(format!("--tool-choice: {error}")))?;
    Ok(Some(ToolUse {
        tools,
        choice,
        parallel: true,
    }))
}

/// The tools of the simulated house.
pub(crate) fn of_house() -> Result<ToolUse, Failure> {
    let tools = ToolSet::parse(HOUSE).map_err(|error| Failure::Failed(error.to_string()))?;
    Ok(ToolUse {
        tools,
        choice: ToolChoice::Auto,
        parallel: true,
    })
}

/// The tool definitions of the simulated house, on which the built-in model was trained.
pub(crate) const HOUSE: &str = include_str!("../assets/house-tools.json");

/// A tool call as a line of JSON.
pub(crate) fn line(call: &ToolCall) -> String {
    json!({ "id": call.id, "name": call.name, "arguments": call.arguments }).to_string()
}
