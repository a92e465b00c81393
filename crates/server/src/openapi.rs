//! `GET /openapi.json`: what this server answers, for programs that write clients.
//!
//! The document is written by hand; the tests hold it to the types that requests are read into, and
//! to the router.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};

const DOCUMENT: &str = include_str!("../openapi.json");

/// The document.
pub(crate) async fn document() -> Response {
    (
        [(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )],
        DOCUMENT,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::{
        Deserializer,
        de::{DeserializeOwned, Error, Visitor, value},
    };
    use serde_json::{Map, Value};

    use super::DOCUMENT;
    use crate::{
        api::{
            anthropic::{count::CountRequest, create::MessagesRequest},
            llama,
            native::{Detokenize, Tokenize},
            ollama::{
                self,
                embed::{EmbedRequest, EmbeddingsRequest},
                generate::GenerateRequest,
                models::{Pull, Show},
                options::Options,
            },
            openai::{
                chat::ChatRequest, completions::CompletionRequest, embeddings::EmbeddingRequest,
                responses::request::ResponseRequest,
            },
        },
        flow::{body, warnings::Warnings},
        routes,
    };

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    /// What a reference of the document refers to, or the value itself.
    fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
        value["$ref"].as_str().map_or(value, |place| {
            document.pointer(place.trim_start_matches('#')).unwrap()
        })
    }

    /// The JSON that a path takes.
    fn taken<'a>(document: &'a Value, path: &str) -> &'a Value {
        &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    }

    fn names(value: &Value) -> BTreeSet<String> {
        match value {
            Value::Object(fields) => fields.keys().cloned().collect(),
            Value::Array(names) => names
                .iter()
                .map(|name| name.as_str().unwrap().to_owned())
                .collect(),
            _ => BTreeSet::new(),
        }
    }

    /// Reads nothing, and keeps the names of the fields that a struct asks for.
    struct FieldNames<'a>(&'a mut BTreeSet<String>);

    impl<'de> Deserializer<'de> for FieldNames<'_> {
        type Error = value::Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, value::Error> {
            self.0
                .extend(fields.iter().map(|field| (*field).to_owned()));
            Err(value::Error::custom("there are no values"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
            unreachable!("requests are structs")
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    /// The fields that a type is read from.
    fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        assert!(T::deserialize(FieldNames(&mut names)).is_err());
        names
    }

    fn has_the_fields_of<T: DeserializeOwned>(schema: &Value) {
        assert_eq!(names(&schema["properties"]), fields::<T>());
    }

    /// What is said of a body of some of the fields.
    fn refused<T: DeserializeOwned>(fields: Map<String, Value>) -> Option<String> {
        let error = body::parse::<T>(
            Value::Object(fields).to_string().as_bytes(),
            &[],
            &Warnings::default(),
        )
        .err()?;
        Some(error.message)
    }

    /// The example has the required fields and no others; it is enough, and nothing less is.
    fn describes<T: DeserializeOwned>(path: &str) {
        let document = document();
        let taken = taken(&document, path);
        let (schema, example) = (resolved(&document, &taken["schema"]), &taken["example"]);
        has_the_fields_of::<T>(schema);
        assert_eq!(names(example), names(&schema["required"]), "{path}");
        let example = example.as_object().unwrap();
        assert_eq!(refused::<T>(example.clone()), None, "{path}");
        for name in example.keys() {
            let mut fields = example.clone();
            fields.remove(name);
            assert_eq!(
                refused::<T>(fields),
                Some(format!("the field {name:?} is missing")),
                "{path}"
            );
        }
    }

    #[test]
    fn requests_have_the_fields_that_are_read() {
        describes::<ChatRequest>("/v1/chat/completions");
        describes::<CompletionRequest>("/v1/completions");
        describes::<ResponseRequest>("/v1/responses");
        describes::<EmbeddingRequest>("/v1/embeddings");
        describes::<MessagesRequest>("/v1/messages");
        describes::<CountRequest>("/v1/messages/count_tokens");
        describes::<ollama::chat::ChatRequest>("/api/chat");
        describes::<GenerateRequest>("/api/generate");
        describes::<EmbedRequest>("/api/embed");
        describes::<EmbeddingsRequest>("/api/embeddings");
        describes::<llama::template::TemplateRequest>("/apply-template");
        describes::<Tokenize>("/tokenize");
        describes::<Detokenize>("/detokenize");
        let schemas = &document()["components"]["schemas"];
        has_the_fields_of::<Options>(&schemas["Options"]);
        has_the_fields_of::<llama::options::Settings>(&schemas["NativeSettings"]);
        // The model has two names, and either will do.
        has_the_fields_of::<Show>(&schemas["ShowRequest"]);
        has_the_fields_of::<Pull>(&schemas["PullRequest"]);
    }

    #[test]
    fn paths_and_methods_are_those_of_the_router() {
        let document = document();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| names(item).into_iter().map(|method| (path.clone(), method)))
            .collect();
        let (gets, posts) = (routes::gets(), routes::posts());
        let gets = gets
            .iter()
            .map(|(path, _)| (path.replace('*', ""), "get".to_owned()));
        let posts = posts
            .iter()
            .map(|(path, _)| ((*path).to_owned(), "post".to_owned()));
        assert_eq!(described, gets.chain(posts).collect());
    }

    #[test]
    fn references_lead_somewhere_and_everything_that_has_a_name_is_referred_to() {
        let document = document();
        let mut found = BTreeSet::new();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            if let Some(place) = value["$ref"].as_str() {
                assert!(
                    document.pointer(place.trim_start_matches('#')).is_some(),
                    "{place}"
                );
                found.insert(place.to_owned());
            }
            match value {
                Value::Object(fields) => open.extend(fields.values()),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        let all = names(&document["components"]["schemas"]);
        let unused: Vec<_> = all
            .iter()
            .filter(|name| !found.contains(&format!("#/components/schemas/{name}")))
            .collect();
        assert_eq!(unused, Vec::<&String>::new());
    }

    #[test]
    fn it_is_of_this_version() {
        assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
