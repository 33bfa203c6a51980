//! Field paths, written as kubectl writes them: `spec.ingress[0].from[1].ipBlock.cidr`.

/// A place in an object, linked to the places around it. It is on the stack of the decoders and
/// becomes text only when a problem is reported.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At<'p> {
    Root,
    Field(&'p At<'p>, &'p str),
    Index(&'p At<'p>, usize),
}

impl<'p> At<'p> {
    pub(crate) fn field(&'p self, name: &'p str) -> At<'p> {
        At::Field(self, name)
    }

    pub(crate) fn index(&'p self, index: usize) -> At<'p> {
        At::Index(self, index)
    }

    /// The path as text; `None` at the root.
    pub(crate) fn text(&self) -> Option<String> {
        let mut path = PathText::default();
        self.write(&mut path);
        path.finish()
    }

    fn write(&self, path: &mut PathText) {
        match self {
            At::Root => {}
            At::Field(parent, name) => {
                parent.write(path);
                path.field(name);
            }
            At::Index(parent, index) => {
                parent.write(path);
                path.index(*index);
            }
        }
    }
}

/// A path that is being written down.
#[derive(Debug, Default)]
pub(crate) struct PathText(String);

impl PathText {
    /// Writes keys that are not plain words in brackets and quotes: `metadata.labels["a.b/c"]`.
    pub(crate) fn field(&mut self, name: &str) {
        let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        if !name.is_empty() && name.bytes().all(plain) {
            if !self.0.is_empty() {
                self.0.push('.');
            }
            self.0.push_str(name);
        } else {
            self.0
                .push_str(&format!("[{}]", palisade_core::text::quoted(name)));
        }
    }

    pub(crate) fn index(&mut self, index: usize) {
        self.0.push_str(&format!("[{index}]"));
    }

    pub(crate) fn finish(self) -> Option<String> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_read_as_kubectl_writes_them() {
        let spec = At::Root.field("spec");
        let ingress = spec.field("ingress");
        let rule = ingress.index(0);
        assert_eq!(
            rule.field("from").index(12).text().as_deref(),
            Some("spec.ingress[0].from[12]")
        );
        let labels = At::Field(&At::Root, "labels");
        assert_eq!(
            labels.field("a.b/c").text().as_deref(),
            Some("labels[\"a.b/c\"]")
        );
        assert_eq!(At::Root.text(), None);
    }
}
