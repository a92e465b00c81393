//! The interfaces of other servers: each folder maps the JSON of its clients to the types of
//! [`flow`](crate::flow), and the events of an answer back to JSON.

#[cfg(feature = "interfaces")]
pub(crate) mod anthropic;
pub(crate) mod flavor;
pub(crate) mod llama;
pub(crate) mod native;
#[cfg(feature = "interfaces")]
pub(crate) mod ollama;
pub(crate) mod openai;
