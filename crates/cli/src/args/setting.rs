//! The flags of the library's settings, for its errors.

use atta::Setting;

/// The flag of a setting.
pub(crate) fn flag(setting: Setting) -> &'static str {
    match setting {
        Setting::Temperature => "-t",
        Setting::Typical => "--typical",
        Setting::TopP => "--top-p",
        Setting::MinP => "--min-p",
        Setting::TopNSigma => "--top-n-sigma",
        Setting::RepeatPenalty => "--repeat-penalty",
        Setting::PresencePenalty => "--presence-penalty",
        Setting::FrequencyPenalty => "--frequency-penalty",
        Setting::LogitBias => "--logit-bias",
        Setting::DryMultiplier => "--dry-multiplier",
        Setting::DryBase => "--dry-base",
        Setting::DryPenaltyLastN => "--dry-penalty-last-n",
        Setting::DrySequenceBreaker => "--dry-sequence-breaker",
        Setting::Stop => "--stop",
        Setting::NPredict => "-n",
        Setting::OnLength => "--on-length",
        Setting::NCtx => "-c",
        Setting::NBatch => "--batch",
        Setting::KvType => "--kv",
        Setting::Weights => "--weights",
        Setting::Fit => "--fit",
        Setting::Quality => "--quality",
        Setting::Experts => "--experts",
        Setting::TokenizerFile => "--tokenizer",
        Setting::PreTokenizer => "--pre",
        Setting::ApiKey => "--api-key",
        Setting::Insecure => "--insecure",
        Setting::AllowOrigin => "--allow-origin",
        Setting::AllowHost => "--allow-host",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atta::{Error, Explain, Sampling};

    #[test]
    fn errors_of_the_library_name_flags() {
        let error = Error::PromptTooLong {
            n_prompt: 9,
            n_ctx: 8,
        };
        let text = "the prompt has 9 tokens, but the context holds 8: ";
        assert_eq!(
            error.explain(flag),
            format!("{text}raise -c or shorten the prompt")
        );
        assert_eq!(
            error.to_string(),
            format!("{text}raise the context length or shorten the prompt")
        );
        let sampling = Sampling {
            top_p: 1.5,
            ..Sampling::default()
        };
        let error = sampling.validate().unwrap_err();
        assert_eq!(error.explain(flag), "--top-p is 1.5, expected 0 to 1");
    }
}
