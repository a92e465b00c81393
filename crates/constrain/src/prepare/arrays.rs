//! Items of arrays: counts, `contains`, `uniqueItems`, `unevaluatedItems`.

use serde_json::{Value, json};

use super::{Extent, Flaw, IN_PLACE, Node, Walk, asks_for_nothing, count, counts};

/// As many items are asked for one by one.
const MAX_CONTAINED: u64 = 16;

impl<'a> Walk<'a> {
    pub(super) fn array(&mut self, node: &mut Node<'a>) -> Result<(), Flaw> {
        if !node.may_be("array") {
            return Ok(());
        }
        let (min, max) = counts(node, "minItems", "maxItems")?;
        if max.is_some_and(|max| min > max) {
            return Err(node.flaw("\"minItems\" is greater than \"maxItems\": no array is allowed"));
        }
        let is_tuple = node.out.get("items").is_some_and(Value::is_array);
        if !is_tuple {
            node.out.shift_remove("additionalItems");
        }
        if node.keys.get("uniqueItems") == Some(&Value::Bool(true)) && max.is_none_or(|max| max > 1)
        {
            self.give_up(
                node,
                "uniqueItems",
                "a grammar cannot look back at what was written",
            )?;
        }
        self.unevaluated_items(node, is_tuple)?;
        self.contains(node, is_tuple, min, max)
    }

    fn unevaluated_items(&mut self, node: &mut Node<'a>, is_tuple: bool) -> Result<(), Flaw> {
        let key = "unevaluatedItems";
        let Some(schema) = node
            .keys
            .get(key)
            .filter(|schema| !asks_for_nothing(schema))
        else {
            return Ok(());
        };
        let rest = if is_tuple { "additionalItems" } else { "items" };
        if node.out.contains_key(rest) {
            return Ok(());
        }
        if IN_PLACE
            .iter()
            .chain(&["if", "contains"])
            .any(|other| node.keys.contains_key(*other))
        {
            return self.give_up(node, key, "other schemas beside it decide what it is about");
        }
        let schema = self.schema(schema, &format!("{}/{key}", node.at), Extent::Whole)?;
        node.out.insert(rest.to_owned(), schema);
        Ok(())
    }

    /// `contains` asks for items anywhere; they are written first.
    fn contains(
        &mut self,
        node: &mut Node<'a>,
        is_tuple: bool,
        min: u64,
        max: Option<u64>,
    ) -> Result<(), Flaw> {
        let Some(schema) = node.keys.get("contains") else {
            return Ok(());
        };
        let n = count(node, "minContains")?.unwrap_or(1);
        let has_max = node.keys.contains_key("maxContains");
        if n == 0 && !has_max {
            return Ok(());
        }
        if is_tuple || has_max || n > MAX_CONTAINED || node.out.contains_key("prefixItems") {
            return self.give_up(node, "contains", "a grammar cannot count what was written");
        }
        if max.is_some_and(|max| max < n) {
            return Err(
                node.flaw("\"maxItems\" is less than \"contains\" asks for: no array is allowed")
            );
        }
        let place = if node.out.contains_key("items") {
            Extent::Part
        } else {
            Extent::Whole
        };
        let one = self.schema(schema, &format!("{}/contains", node.at), place)?;
        let one = match node.out.get("items") {
            Some(items) => json!({ "allOf": [items, one] }),
            None => one,
        };
        node.out
            .insert("prefixItems".to_owned(), vec![one; n as usize].into());
        node.out.insert("minItems".to_owned(), min.max(n).into());
        Ok(())
    }
}
