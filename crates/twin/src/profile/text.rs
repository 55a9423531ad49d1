//! A profile as text: what [`Profile::parse`](super::Profile::parse) reads, in the layout of those
//! that are part of the program.

use std::fmt::Write;

use super::{Condition, Number, Part, ProfileFile, Setting};

impl ProfileFile {
    /// The profile as text.
    pub fn to_toml(&self) -> String {
        let ProfileFile { schema, size_bytes, sector_bytes, rotational, volatile_bytes, .. } = self;
        let mut text = format!(
            "schema = {schema}\nname = {}\ntitle = {}\nabout = {}\nsize_bytes = {size_bytes}\n\
             sector_bytes = {sector_bytes}\nrotational = {rotational}\nvolatile_bytes = {volatile_bytes}\n\
             setting = {}\nexplains = {}\n",
            quoted(&self.name),
            quoted(&self.title),
            quoted(&self.about),
            setting(self.setting),
            list(&self.explains),
        );
        let mut table = "part".to_owned();
        for part in self.part.chain() {
            push_part(&mut text, &table, part);
            table += ".behind";
        }
        text
    }
}

fn push_part(text: &mut String, table: &str, part: &Part) {
    let kind = quoted(&part.kind);
    let _ = write!(text, "\n[{table}]\nkind = {kind}\n\n[{table}.numbers]\n");
    for (name, Number { value, source, rows, chosen }) in &part.numbers {
        let source = quoted(source);
        let fitted = match rows.as_slice() {
            [] => String::new(),
            rows => format!(", rows = {}", list(rows)),
        };
        let chosen = if *chosen { ", chosen = true" } else { "" };
        let _ = writeln!(text, "{name} = {{ value = {value}, source = {source}{fitted}{chosen} }}");
    }
}

fn setting(setting: Setting) -> String {
    let condition = match setting.condition {
        Condition::Fresh => "fresh",
        Condition::Used => "used",
    };
    format!("{{ write_cache = {}, condition = \"{condition}\" }}", setting.write_cache)
}

fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", "))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
