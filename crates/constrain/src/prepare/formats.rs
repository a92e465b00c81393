//! What each `format` of a string asks for.

/// How a format is kept.
pub(super) enum StringFormat {
    /// llguidance knows it.
    Known,
    /// Our own regular expression.
    Pattern(&'static str),
    /// It tells readers something, and asks for nothing that a text could fail.
    Annotation,
    /// A name that no list has.
    Unknown,
}

/// Looks a format up.
pub(super) fn lookup(name: &str) -> StringFormat {
    if let Some(pattern) = pattern(name) {
        return StringFormat::Pattern(pattern);
    }
    match name {
        "date-time" | "time" | "date" | "duration" | "email" | "hostname" | "ipv4" | "ipv6"
        | "uuid" | "uri" | "unknown" => StringFormat::Known,
        // JSON Schema's that no regular expression decides, OpenAPI's registry, those of zod and of
        // Google's interfaces.
        "idn-email" | "idn-hostname" | "iri" | "iri-reference" | "uri-template" | "regex"
        | "binary" | "password" | "path" | "enum" | "int8" | "int16" | "int32" | "int64"
        | "uint8" | "uint16" | "uint32" | "uint64" | "float" | "double" | "decimal"
        | "decimal128" | "html" | "commonmark" | "markdown" | "media-range" | "char" | "text"
        | "string" | "textarea" | "color" | "emoji" | "google-datetime" | "google-duration"
        | "google-fieldmask" | "json-string" | "lowercase" | "uppercase" | "file" | "url"
        | "phone" => StringFormat::Annotation,
        _ => StringFormat::Unknown,
    }
}

fn pattern(name: &str) -> Option<&'static str> {
    Some(match name {
        "byte" | "base64" => "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        "base64url" => "^[A-Za-z0-9_-]*$",
        "jwt" => r"^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*$",
        "json-pointer" => "^(?:/(?:[^~/]|~[01])*)*$",
        "relative-json-pointer" => "^(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)$",
        "uri-reference" => {
            r"^(?:[A-Za-z0-9\-._~!$&'()*+,;=@/?]|%[0-9A-Fa-f]{2})*(?:#(?:[A-Za-z0-9\-._~!$&'()*+,;=@/?:]|%[0-9A-Fa-f]{2})*)?$"
        }
        "cidrv4" => {
            r"^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])/(?:3[0-2]|[12]?[0-9])$"
        }
        "e164" => r"^\+[1-9][0-9]{6,14}$",
        "cuid" => "^c[a-z0-9]{8,}$",
        "cuid2" => "^[0-9a-z]+$",
        "ulid" => "^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
        "nanoid" => "^[A-Za-z0-9_-]{21}$",
        "guid" => "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
        _ => return None,
    })
}
