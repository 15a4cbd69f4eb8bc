//! Whether a call's arguments are all here, without parsing them: not every model writes strict JSON.

/// How much of a call's arguments is here.
#[derive(Default)]
pub(crate) struct ArgumentsState {
    pub(crate) has_any: bool,
    depth: i64,
    is_in_string: bool,
    is_escaped: bool,
}

impl ArgumentsState {
    pub(crate) fn extend(&mut self, piece: &str) {
        self.has_any |= !piece.is_empty();
        for byte in piece.bytes() {
            match byte {
                _ if std::mem::take(&mut self.is_escaped) => {}
                b'\\' => self.is_escaped = self.is_in_string,
                b'"' => self.is_in_string = !self.is_in_string,
                b'{' | b'[' if !self.is_in_string => self.depth += 1,
                b'}' | b']' if !self.is_in_string => self.depth -= 1,
                _ => {}
            }
        }
    }

    pub(crate) fn is_in_object(&self) -> bool {
        self.depth > 0
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.has_any && !self.is_in_object()
    }
}
