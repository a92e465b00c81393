//! Where a module computes floats: only the functions of `exact.wgsl` may, and each passes its
//! result through the guard.
//!
//! It walks naga's modules and knows no kernel. The one idea: a rule about places is stronger and
//! simpler than one about the flow of values. Comparisons, selections and bits of floats are free.

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, BinaryOperator, Block, Expression, Function, Handle, Module, ScalarKind,
    Statement, TypeInner, UnaryOperator,
};

/// One operation each, whose result only the guard sees.
const GUARDED: [&str; 3] = ["add", "sub", "mul"];
/// Conversion of integers: both of its operations are exact, the sum is rounded once.
const CONVERSION: &str = "to_float";
const GUARD: &str = "guard";

/// A function of a module, with the types of its expressions.
struct FloatWalk<'a> {
    module: &'a Module,
    name: &'a str,
    function: &'a Function,
    info: &'a FunctionInfo,
}

/// Float operations that a compiler may fuse, reassociate or round otherwise, in words.
pub(crate) fn unguarded(module: &Module, info: &ModuleInfo) -> Vec<String> {
    let functions = module.functions.iter().map(|(handle, function)| FloatWalk {
        module,
        name: function.name.as_deref().unwrap_or_default(),
        function,
        info: &info[handle],
    });
    let entries = module.entry_points.iter().enumerate();
    let entries = entries.map(|(i, entry)| FloatWalk {
        module,
        name: &entry.name,
        function: &entry.function,
        info: info.get_entry_point(i),
    });
    let mut found: Vec<String> = functions
        .chain(entries)
        .flat_map(|walk| walk.findings())
        .collect();
    if !has_guard(module) {
        found.push("there is no guard".to_owned());
    }
    found
}

/// Whether the guard is an xor with the first word of the parameters, which is called zero.
fn has_guard(module: &Module) -> bool {
    let mut functions = module.functions.iter().map(|(_, function)| function);
    let Some(guard) = functions.find(|function| function.name.as_deref() == Some(GUARD)) else {
        return false;
    };
    guard.expressions.iter().any(|(_, expression)| {
        let Expression::Binary {
            op: BinaryOperator::ExclusiveOr,
            right,
            ..
        } = *expression
        else {
            return false;
        };
        is_zero_of_params(module, guard, right)
    })
}

fn is_zero_of_params(module: &Module, guard: &Function, at: Handle<Expression>) -> bool {
    let Expression::Load { pointer } = guard.expressions[at] else {
        return false;
    };
    let Expression::AccessIndex { base, index: 0 } = guard.expressions[pointer] else {
        return false;
    };
    let Expression::GlobalVariable(global) = guard.expressions[base] else {
        return false;
    };
    let global = &module.global_variables[global];
    let TypeInner::Struct { members, .. } = &module.types[global.ty].inner else {
        return false;
    };
    global.space == AddressSpace::Uniform && members[0].name.as_deref() == Some("zero")
}

impl FloatWalk<'_> {
    fn findings(&self) -> Vec<String> {
        let expressions = self.function.expressions.iter();
        expressions
            .filter(|(handle, _)| !self.is_fine(*handle))
            .map(|(_, expression)| format!("{}: {expression:?}", self.name))
            .collect()
    }

    fn is_float(&self, at: Handle<Expression>) -> bool {
        let inner = self.info[at].ty.inner_with(&self.module.types);
        matches!(
            inner.scalar_kind(),
            Some(ScalarKind::Float | ScalarKind::AbstractFloat)
        )
    }

    fn is_fine(&self, at: Handle<Expression>) -> bool {
        match self.function.expressions[at] {
            Expression::Binary { op, left, .. } if is_arithmetic(op) && self.is_float(left) => {
                self.is_guarded(at)
            }
            Expression::Unary {
                op: UnaryOperator::Negate,
                expr,
            } => !self.is_float(expr),
            Expression::Math { arg, .. } => !self.is_float(arg),
            Expression::As {
                expr,
                kind,
                convert: Some(_),
            } => {
                let converts = self.is_float(expr) != (kind == ScalarKind::Float);
                !converts || (self.name == CONVERSION && !self.is_float(expr))
            }
            Expression::Relational { argument, .. } => !self.is_float(argument),
            Expression::Derivative { .. } => false,
            _ => true,
        }
    }

    /// Whether an operation stands where it may, and its result goes to the guard.
    fn is_guarded(&self, at: Handle<Expression>) -> bool {
        let uses = self.uses(at);
        let is_product = matches!(
            self.function.expressions[at],
            Expression::Binary {
                op: BinaryOperator::Multiply,
                ..
            }
        );
        if self.name == CONVERSION && is_product {
            return uses == 1;
        }
        let stands_well = GUARDED.contains(&self.name) || self.name == CONVERSION;
        stands_well && uses == 0 && self.goes_to_guard(&self.function.body, at)
    }

    /// How many float operations read a result.
    fn uses(&self, at: Handle<Expression>) -> usize {
        let expressions = self.function.expressions.iter();
        expressions
            .filter(|(_, expression)| match expression {
                Expression::Binary { left, right, .. } => *left == at || *right == at,
                _ => false,
            })
            .count()
    }

    fn goes_to_guard(&self, block: &Block, at: Handle<Expression>) -> bool {
        block.iter().any(|statement| match statement {
            Statement::Call {
                function,
                arguments,
                ..
            } => {
                let name = self.module.functions[*function].name.as_deref();
                name == Some(GUARD) && arguments[..] == [at]
            }
            Statement::Block(block) => self.goes_to_guard(block, at),
            _ => false,
        })
    }
}

fn is_arithmetic(op: BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Add
            | BinaryOperator::Subtract
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo
    )
}
