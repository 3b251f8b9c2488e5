//! Finds the names of the resources that a class can have, as far as they follow from the class
//! file alone, without a host.

use std::collections::BTreeSet;

use super::attribute::{AttributeOrigin, AttributeSource, TextSource};
use super::{ClassSpec, Template};
use crate::name::AttributeName;
use crate::template::Attributes;

impl ClassSpec {
    /// Returns the names of the resources that the class can have, except names that contain a
    /// value that is read from the host. For a template such as `vendor.example/{sort}`, it returns
    /// one name for each fixed value of the attribute `sort`.
    pub fn list_fixed_resources(&self) -> BTreeSet<String> {
        let mut names = fill_with_fixed_values(&self.resource, self);
        names.extend(self.count_resource().map(String::from));
        names
    }

    /// Returns those values of an attribute that are written in the class file, so that they are
    /// known without a host.
    fn list_fixed_values(&self, attribute: &AttributeName) -> BTreeSet<String> {
        let sources = self.discover.iter().flat_map(|source| &source.attributes);
        let sources = self.attributes.iter().chain(sources);
        sources
            .filter(|source| source.names().any(|name| name == attribute))
            .flat_map(list_fixed_source_values)
            .collect()
    }
}

fn fill_with_fixed_values(template: &Template, spec: &ClassSpec) -> BTreeSet<String> {
    let attributes: BTreeSet<&AttributeName> = template.attributes().collect();
    let Some(attribute) = attributes.first() else {
        return BTreeSet::from([template.to_string()]);
    };
    if attributes.len() > 1 {
        return BTreeSet::new();
    }
    let values = spec.list_fixed_values(attribute).into_iter();
    let names = values.filter_map(|value| {
        let mut attributes = Attributes::default();
        attributes.insert((*attribute).clone(), value);
        template.fill(&attributes).ok()
    });
    names.collect()
}

/// Returns the values that are written in one entry of `attributes`: a fixed `value`, the values of
/// `map`, and the default.
fn list_fixed_source_values(source: &AttributeSource) -> impl Iterator<Item = String> {
    let fixed_value = match &source.origin {
        AttributeOrigin::Text {
            text: TextSource::Value(value),
            regex: None,
            ..
        } if source.replacements.is_empty() => Some(value),
        _ => None,
    };
    let texts = fixed_value.into_iter().chain(&source.default);
    let texts = texts.filter(|text| text.attributes().next().is_none());
    texts
        .map(ToString::to_string)
        .chain(source.replacements.values().cloned())
}

#[cfg(test)]
mod tests {
    use crate::DeviceClass;

    #[test]
    fn a_template_has_a_name_for_each_fixed_value() {
        for (resource, attributes, expected) in [
            ("x.com/x", "", "x.com/x"),
            ("x.com/{sort}", "{ name = 'sort', value = 'a' }", "x.com/a"),
            (
                "x.com/{sort}",
                "{ name = 'sort', file = 'f', map = { one = 'a', two = 'b' }, default = 'c' }",
                "x.com/a x.com/b x.com/c",
            ),
            ("x.com/{sort}", "{ name = 'sort', file = 'f' }", ""),
            ("x.com/{sort}", "{ name = 'sort', value = 'n{n}' }", ""),
            ("x.com/{n}-{sort}", "{ name = 'sort', value = 'a' }", ""),
        ] {
            let text = format!(
                "version = 1\nresource = '{resource}'\nrequest = {{ env = 'X' }}\n\
                 device = {{ id = 'x-{{n}}' }}\n\
                 [[discover]]\npath = '/dev/x{{n:number}}'\nattributes = [{attributes}]\n"
            );
            let name = "x".to_owned().try_into().unwrap();
            let class = DeviceClass::parse(name, "x.toml".as_ref(), &text).unwrap();
            let found: Vec<String> = class.spec.list_fixed_resources().into_iter().collect();
            assert_eq!(found.join(" "), expected, "{text}");
        }
    }
}
