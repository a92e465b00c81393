//! A restricted unpickler. A pickle is a program for a stack machine; this one can build
//! dictionaries of tensors and nothing else.
//!
//! All objects are in one list, and values refer to them by index, so an object that contains
//! itself does no harm. No function is recursive, however deep a pickle nests. Each step makes at
//! most one object, so [`MAX_STEPS`] bounds memory.
//!
//! Source: CPython's `Lib/pickletools.py` for the opcodes; `torch/serialization.py` and
//! `torch/_utils.py` for the objects saved.

use std::collections::HashMap;

use super::global::Global;
use crate::raw::Dtype;

/// The most steps of a pickle. A tensor takes about thirty.
const MAX_STEPS: usize = 1 << 22;
/// The most dimensions of a tensor; real ones have at most five.
const MAX_DIMS: usize = 8;
/// The longest line, which is the name of a module or of a global.
const MAX_LINE: usize = 256;

/// A value on the stack.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value<'a> {
    /// None, a float, or a large integer, which no tensor needs.
    Other,
    Bool,
    Int(i64),
    Text(&'a str),
    Global(Global),
    /// An index into the list of objects.
    Object(u32),
}

/// An object made from several values.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum PickleObject<'a> {
    Tuple(Vec<Value<'a>>),
    List,
    Dict(Vec<(Value<'a>, Value<'a>)>),
    Storage(Storage<'a>),
    Tensor(TensorView<'a>),
}

/// A storage: elements in a file of the archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Storage<'a> {
    pub(super) dtype: Dtype,
    /// The name of the file in the directory `data`.
    pub(super) key: &'a str,
    pub(super) n_elements: u64,
}

/// A tensor, which is a view of a storage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TensorView<'a> {
    pub(super) storage: Storage<'a>,
    /// Offset in the storage, in elements.
    pub(super) offset: u64,
    /// Dimensions, outermost first.
    pub(super) dims: Vec<u64>,
    /// Strides in elements, one per dimension.
    pub(super) strides: Vec<u64>,
}

/// The tensors of a pickled dictionary, by name.
pub(super) fn tensors(pickle: &[u8]) -> Result<Vec<(&str, TensorView<'_>)>, String> {
    let mut unpickler = Unpickler::new(pickle);
    let result = unpickler
        .run()
        .map_err(|why| format!("byte {} of the pickle: {why}", unpickler.at))?;
    let entries = match result {
        Value::Object(i) => {
            std::mem::replace(&mut unpickler.objects[i as usize], PickleObject::List)
        }
        _ => PickleObject::List,
    };
    let PickleObject::Dict(entries) = entries else {
        return Err("is no dictionary of tensors".into());
    };
    entries
        .into_iter()
        .map(|(name, value)| unpickler.tensor(name, value))
        .collect()
}

struct Unpickler<'a> {
    pickle: &'a [u8],
    at: usize,
    stack: Vec<Value<'a>>,
    /// Heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u32, Value<'a>>,
    objects: Vec<PickleObject<'a>>,
}

impl<'a> Unpickler<'a> {
    fn new(pickle: &'a [u8]) -> Self {
        let stack = Vec::new();
        let marks = Vec::new();
        let memo = HashMap::new();
        let objects = Vec::new();
        Self {
            pickle,
            at: 0,
            stack,
            marks,
            memo,
            objects,
        }
    }

    fn run(&mut self) -> Result<Value<'a>, String> {
        for _ in 0..MAX_STEPS {
            match self.u8()? {
                b'.' => return self.pop(),
                op => self.step(op)?,
            }
        }
        Err(format!("more than {MAX_STEPS} steps"))
    }

    // long: one line for each opcode.
    fn step(&mut self, op: u8) -> Result<(), String> {
        match op {
            // PROTO, FRAME, MARK
            0x80 => self.u8().map(drop),
            0x95 => self.take(8).map(drop),
            b'(' => self.mark(),
            // NONE, NEWTRUE, NEWFALSE, BINFLOAT
            b'N' => self.push(Value::Other),
            0x88 | 0x89 => self.push(Value::Bool),
            b'G' => self.take(8).and_then(|_| self.push(Value::Other)),
            // BININT1, BININT2, BININT, LONG1
            b'K' => self.int(1),
            b'M' => self.int(2),
            b'J' => self
                .take(4)
                .and_then(|b| self.push(Value::Int(little_endian(b)))),
            0x8a => self.long(),
            // SHORT_BINUNICODE, BINUNICODE
            0x8c => self.text(1),
            b'X' => self.text(4),
            // EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT, TUPLE, TUPLE1 to TUPLE3
            b')' => self.make(PickleObject::Tuple(Vec::new())),
            b']' => self.make(PickleObject::List),
            b'}' => self.make(PickleObject::Dict(Vec::new())),
            b't' => self
                .pop_to_mark()
                .and_then(|values| self.make(PickleObject::Tuple(values))),
            0x85..=0x87 => self
                .pop_n(usize::from(op - 0x84))
                .and_then(|values| self.make(PickleObject::Tuple(values))),
            // SETITEM, SETITEMS, APPEND, APPENDS
            b's' => self.pop_n(2).and_then(|pair| self.set_items(&pair)),
            b'u' => self.pop_to_mark().and_then(|items| self.set_items(&items)),
            b'a' => self.pop().and_then(|_| self.append()),
            b'e' => self.pop_to_mark().and_then(|_| self.append()),
            // BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET
            b'q' => self.u8().and_then(|key| self.put(key.into())),
            b'r' => self.u32().and_then(|key| self.put(key)),
            0x94 => self.put(self.memo.len() as u32),
            b'h' => self.u8().and_then(|key| self.get(key.into())),
            b'j' => self.u32().and_then(|key| self.get(key)),
            // GLOBAL, STACK_GLOBAL, INST, REDUCE, BUILD, BINPERSID
            b'c' => self.global(),
            0x93 => self.stack_global(),
            b'i' => self
                .global()
                .and_then(|()| Err("refuses to make an instance of a class".into())),
            b'R' => self.reduce(),
            b'b' => self.build(),
            b'Q' => self.storage(),
            other => Err(format!(
                "opcode {other:#04x} is none of those that torch.save writes"
            )),
        }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], String> {
        let taken = self
            .pickle
            .get(self.at..)
            .and_then(|rest| rest.get(..n))
            .ok_or("ends in the middle")?;
        self.at += n;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, String> {
        self.take(1).map(|b| b[0])
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.take(4).map(|b| little_endian(b) as u32)
    }

    fn int(&mut self, n_bytes: usize) -> Result<(), String> {
        let bytes = self.take(n_bytes)?;
        // These integers are unsigned.
        let int = bytes
            .iter()
            .rev()
            .fold(0, |int, &b| int << 8 | i64::from(b));
        self.push(Value::Int(int))
    }

    fn long(&mut self) -> Result<(), String> {
        let n = self.u8()?;
        let bytes = self.take(n.into())?;
        self.push(if n <= 8 {
            Value::Int(little_endian(bytes))
        } else {
            Value::Other
        })
    }

    fn text(&mut self, n_bytes: usize) -> Result<(), String> {
        let len = self
            .take(n_bytes)?
            .iter()
            .rev()
            .fold(0, |len, &b| len << 8 | usize::from(b));
        let text = str::from_utf8(self.take(len)?).map_err(|_| "a text is not UTF-8")?;
        self.push(Value::Text(text))
    }

    fn line(&mut self) -> Result<&'a str, String> {
        let rest = &self.pickle[self.at..];
        let end = rest
            .iter()
            .take(MAX_LINE)
            .position(|&b| b == b'\n')
            .ok_or("a name without an end")?;
        let line = self.take(end)?;
        self.at += 1;
        str::from_utf8(line).map_err(|_| "a name is not UTF-8".into())
    }

    fn mark(&mut self) -> Result<(), String> {
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), String> {
        self.stack.push(value);
        Ok(())
    }

    fn make(&mut self, object: PickleObject<'a>) -> Result<(), String> {
        // There are fewer objects than MAX_STEPS, so indices fit u32.
        self.objects.push(object);
        self.push(Value::Object(self.objects.len() as u32 - 1))
    }

    fn pop(&mut self) -> Result<Value<'a>, String> {
        self.pop_n(1).map(|values| values[0])
    }

    /// Pops the `n` top values. They must be above the last mark.
    fn pop_n(&mut self, n: usize) -> Result<Vec<Value<'a>>, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self
            .stack
            .len()
            .checked_sub(n)
            .filter(|&from| from >= floor);
        Ok(self
            .stack
            .split_off(from.ok_or("takes more from the stack than is there")?))
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value<'a>>, String> {
        let mark = self
            .marks
            .pop()
            .ok_or("looks for a mark that is not there")?;
        Ok(self.stack.split_off(mark))
    }

    /// The object on top of the stack, which stays there.
    fn top(&mut self) -> Option<&mut PickleObject<'a>> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack[floor..].last() {
            Some(&Value::Object(i)) => self.objects.get_mut(i as usize),
            _ => None,
        }
    }

    fn set_items(&mut self, items: &[Value<'a>]) -> Result<(), String> {
        let Some(PickleObject::Dict(entries)) = self.top() else {
            return Err("puts items into no dictionary".into());
        };
        let (pairs, rest) = items.as_chunks();
        entries.extend(pairs.iter().map(|&[key, value]| (key, value)));
        if rest.is_empty() {
            Ok(())
        } else {
            Err("a key without a value".into())
        }
    }

    /// Checks that a list is appended to. Its items are dropped, because no tensor needs them.
    fn append(&mut self) -> Result<(), String> {
        if self.top() == Some(&mut PickleObject::List) {
            Ok(())
        } else {
            Err("appends to no list".into())
        }
    }

    fn put(&mut self, key: u32) -> Result<(), String> {
        let value = self.pop()?;
        self.stack.push(value);
        self.memo.insert(key, value);
        Ok(())
    }

    fn get(&mut self, key: u32) -> Result<(), String> {
        let value = self
            .memo
            .get(&key)
            .ok_or_else(|| format!("remembers nothing as {key}"))?;
        self.push(*value)
    }

    fn global(&mut self) -> Result<(), String> {
        let module = self.line()?;
        let name = self.line()?;
        self.push(Value::Global(Global::of(module, name)?))
    }

    fn stack_global(&mut self) -> Result<(), String> {
        let [Value::Text(module), Value::Text(name)] = self.pop_n(2)?[..] else {
            return Err("names a global by values that are no text".into());
        };
        self.push(Value::Global(Global::of(module, name)?))
    }

    fn build(&mut self) -> Result<(), String> {
        // The only state that is saved is the versions of modules, which no tensor needs.
        self.pop()?;
        match self.top() {
            Some(PickleObject::Dict(_)) => Ok(()),
            _ => Err("sets the state of an object that is no dictionary".into()),
        }
    }

    fn tuple(&self, value: Value<'a>) -> Option<&[Value<'a>]> {
        match value {
            Value::Object(i) => match self.objects.get(i as usize)? {
                PickleObject::Tuple(values) => Some(values),
                _ => None,
            },
            _ => None,
        }
    }

    fn reduce(&mut self) -> Result<(), String> {
        let [function, arguments] = self.pop_n(2)?[..] else {
            return Err("runs nothing".into());
        };
        let arguments = self
            .tuple(arguments)
            .ok_or("runs something without arguments")?;
        match (function, arguments) {
            (Value::Global(Global::Dict), []) => self.make(PickleObject::Dict(Vec::new())),
            (Value::Global(Global::Parameter), &[tensor, ..]) => self.push(tensor),
            (Value::Global(Global::Tensor), arguments) => {
                let view = self
                    .view(arguments)
                    .ok_or("a tensor of arguments that torch.save does not write")?;
                self.make(PickleObject::Tensor(view))
            }
            _ => Err("runs something with arguments that torch.save does not write".into()),
        }
    }

    fn view(&self, arguments: &[Value<'a>]) -> Option<TensorView<'a>> {
        let &[
            Value::Object(storage),
            Value::Int(offset),
            dims,
            strides,
            ..,
        ] = arguments
        else {
            return None;
        };
        let PickleObject::Storage(storage) = *self.objects.get(storage as usize)? else {
            return None;
        };
        let dims = self.sizes(dims)?;
        let strides = self.sizes(strides)?;
        (dims.len() == strides.len()).then_some(())?;
        Some(TensorView {
            storage,
            offset: u64::try_from(offset).ok()?,
            dims,
            strides,
        })
    }

    fn sizes(&self, tuple: Value<'a>) -> Option<Vec<u64>> {
        let size = |value: &Value<'a>| match *value {
            Value::Int(size) => u64::try_from(size).ok(),
            _ => None,
        };
        self.tuple(tuple)
            .filter(|sizes| sizes.len() <= MAX_DIMS)?
            .iter()
            .map(size)
            .collect()
    }

    /// Resolves a persistent id of PyTorch: `("storage", type, key, device, number of elements)`.
    fn storage(&mut self) -> Result<(), String> {
        let id = self.pop()?;
        match self.tuple(id) {
            Some(
                &[
                    Value::Text("storage"),
                    Value::Global(Global::Storage(dtype)),
                    Value::Text(key),
                    _,
                    Value::Int(n),
                ],
            ) => {
                let n_elements = u64::try_from(n).map_err(|_| "a storage of less than nothing")?;
                self.make(PickleObject::Storage(Storage {
                    dtype,
                    key,
                    n_elements,
                }))
            }
            _ => Err("a storage that torch.save does not write".into()),
        }
    }

    /// Checks that an entry of the dictionary is a tensor with a name.
    fn tensor(
        &self,
        name: Value<'a>,
        value: Value<'a>,
    ) -> Result<(&'a str, TensorView<'a>), String> {
        let Value::Text(name) = name else {
            return Err("a key of its dictionary is no text".into());
        };
        match value {
            Value::Object(i) => match &self.objects[i as usize] {
                PickleObject::Tensor(view) => Ok((name, view.clone())),
                _ => Err(format!("{name} is no tensor")),
            },
            _ => Err(format!("{name} is no tensor")),
        }
    }
}

/// A signed little-endian integer of up to eight bytes.
fn little_endian(bytes: &[u8]) -> i64 {
    let negative = bytes.last().is_some_and(|&b| b >= 0x80);
    bytes
        .iter()
        .rev()
        .fold(if negative { -1 } else { 0 }, |int, &b| {
            int << 8 | i64::from(b)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pickle: &[u8]) -> String {
        tensors(pickle).expect_err(&String::from_utf8_lossy(pickle))
    }

    /// A pickle of `{"w": tensor}`, the tensor made from a storage of 6 floats and these arguments.
    fn tensor(arguments: &[u8]) -> Vec<u8> {
        let storage =
            b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x06tQ";
        let parts: [&[u8]; 6] = [
            b"\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n(",
            storage,
            arguments,
            b"\x89N",
            b"tRs.",
            b"",
        ];
        parts.concat()
    }

    #[test]
    fn a_tensor_is_a_view_of_a_storage() {
        let pickle = tensor(b"K\x01K\x02K\x03\x86K\x03K\x01\x86");
        let storage = Storage {
            dtype: Dtype::F32,
            key: "0",
            n_elements: 6,
        };
        let view = TensorView {
            storage,
            offset: 1,
            dims: vec![2, 3],
            strides: vec![3, 1],
        };
        assert_eq!(tensors(&pickle).unwrap(), [("w", view)]);
    }

    #[test]
    fn arguments_of_another_kind_are_refused() {
        let bad: [&[u8]; 7] = [
            b"",
            b"K\x01",
            b"NK\x02\x85K\x01\x85",
            b"J\xff\xff\xff\xffK\x02\x85K\x01\x85",
            b"K\0J\xfe\xff\xff\xff\x85K\x01\x85",
            b"K\0K\x02\x85))",
            b"K\0NK\x01\x85",
        ];
        for arguments in bad {
            assert!(
                refused(&tensor(arguments)).contains("that torch.save does not write"),
                "{arguments:?}"
            );
        }
        let many = [
            &b"K\0("[..],
            &b"K\x01".repeat(9),
            b"t(",
            &b"K\x01".repeat(9),
            b"t",
        ]
        .concat();
        assert!(refused(&tensor(&many)).contains("that torch.save does not write"));
    }

    #[test]
    fn globals_outside_of_the_allowlist_are_refused() {
        assert_eq!(
            refused(b"cos\nsystem\n."),
            "byte 11 of the pickle: refuses to run os.system, which no checkpoint needs"
        );
        assert!(refused(b"\x8c\x02os\x8c\x06system\x93.").contains("refuses to run os.system"));
        assert!(refused(b"(X\x02\0\0\0lsios\nsystem\n.").contains("refuses to run os.system"));
        assert!(refused(b"(icollections\nOrderedDict\n.").contains("refuses to make an instance"));
        assert!(refused(b"cbuiltins\neval\n.").contains("refuses to run builtins.eval"));
        assert!(
            refused(b"ctorch._utils\n_rebuild\x1b[31m\n.")
                .contains("torch._utils._rebuild\\u{1b}[31m,")
        );
        assert!(
            refused(&[b"c", &[b'x'; 300][..], b"\n\n."].concat()).contains("a name without an end")
        );
        assert!(refused(b"ctorch\nFloatStorage\n)R.").contains("that torch.save does not write"));
        assert!(refused(b"NNR.").contains("runs something without arguments"));
    }

    #[test]
    fn nothing_is_popped_from_an_empty_stack_or_below_a_mark() {
        for pickle in [
            &b"."[..],
            b"R",
            b"s",
            b"b",
            b"Q",
            b"a",
            b"\x87",
            b"q\0",
            b"\x93",
            b"}(.",
            b"}(Ns",
            b"}(q\0",
            b"N(b",
            b"N(Na",
        ] {
            let why = refused(pickle);
            assert!(
                why.ends_with("takes more from the stack than is there")
                    || why.ends_with("appends to no list"),
                "{why}"
            );
        }
        for pickle in [b"t", b"u", b"e"] {
            assert!(refused(pickle).ends_with("looks for a mark that is not there"));
        }
    }

    #[test]
    fn items_are_added_to_objects_of_the_right_type_only() {
        assert!(refused(b"]X\x01\0\0\0wNs.").ends_with("puts items into no dictionary"));
        assert!(refused(b"}(X\x01\0\0\0wu.").ends_with("a key without a value"));
        assert!(refused(b"}Na.").ends_with("appends to no list"));
        assert!(refused(b")}b.").ends_with("sets the state of an object that is no dictionary"));
        assert!(refused(b"h\0.").ends_with("remembers nothing as 0"));
        assert_eq!(refused(b"]."), "is no dictionary of tensors");
        assert_eq!(refused(b"}NNs."), "a key of its dictionary is no text");
        assert_eq!(
            refused(b"}X\x01\0\0\0wh\x07"),
            "byte 9 of the pickle: remembers nothing as 7"
        );
        assert_eq!(refused(b"}X\x01\0\0\0w}s."), "w is no tensor");
        assert_eq!(
            refused(b"X\xff\xff\xff\xffw"),
            "byte 5 of the pickle: ends in the middle"
        );
        assert_eq!(
            refused(b"2"),
            "byte 1 of the pickle: opcode 0x32 is none of those that torch.save writes"
        );
    }

    #[test]
    fn a_dictionary_that_contains_itself_is_refused() {
        assert_eq!(refused(b"}q\0X\x01\0\0\0wh\0s."), "w is no tensor");
    }

    #[test]
    fn depth_and_length_are_bounded_by_steps() {
        let deep = [&b")"[..], &b"\x85".repeat(1_000_000), b"."].concat();
        assert_eq!(refused(&deep), "is no dictionary of tensors");
        let long = b"N".repeat(MAX_STEPS + 1);
        assert!(refused(&long).ends_with("more than 4194304 steps"));
    }

    #[test]
    fn integers_have_the_right_signs() {
        fn ints(pickle: &[u8]) -> Value<'_> {
            Unpickler::new(pickle).run().unwrap()
        }
        assert_eq!(ints(b"K\xff."), Value::Int(255));
        assert_eq!(ints(b"M\xff\xff."), Value::Int(65535));
        assert_eq!(ints(b"J\xfe\xff\xff\xff."), Value::Int(-2));
        assert_eq!(ints(b"\x8a\x05\0\0\0\0\x01."), Value::Int(1 << 32));
        assert_eq!(ints(b"\x8a\x01\xff."), Value::Int(-1));
        assert_eq!(ints(b"\x8a\0."), Value::Int(0));
        assert_eq!(ints(b"\x8a\x09\0\0\0\0\0\0\0\0\x01."), Value::Other);
    }
}
