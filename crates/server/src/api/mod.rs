//! The interfaces of other servers: each folder maps the JSON of its clients to the types of
//! [`flow`](crate::flow), and the events of an answer back to JSON.

pub(crate) mod anthropic;
pub(crate) mod flavor;
pub(crate) mod llama;
pub(crate) mod native;
pub(crate) mod ollama;
pub(crate) mod openai;
