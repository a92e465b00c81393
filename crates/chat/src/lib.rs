//! Conversations as prompts: chat templates, tool definitions, and tool calls in answers.
//!
//! A [`ChatFormat`] turns a conversation into a prompt with the rules for its answer and a parser
//! of it. Knows no engine and no session: the caller generates.

#![forbid(unsafe_code)]

mod calling;
mod default;
mod error;
mod format;
mod message;
mod prompt;
pub mod reasoning;
mod repair;
mod stop;
mod system;
mod template;
pub mod tools;

pub use calling::ToolUse;
pub use default::{ModelTemplates, Origin, TemplateChoice};
pub use error::Error;
pub use format::{AnswerRules, ChatFormat, ChatInput, ChatPrompt, PromptEnd, ReplyOptions};
pub use message::{Conversation, Message, Role};
pub use prompt::{Prompt, prompt_ids};
pub use template::{DateTime, SpecialTexts, Template, TemplateError};
