//! The lines of a sidecar: one JSON object each.

use std::path::{Path, PathBuf};

use ioverbs::{Error, Metadata, Name, Result, Uuid};
use serde_json::{Map, Value as Json, json};

use super::{VERSION, values};
use crate::{
    output::json_name,
    pairs::unhex,
    quantity::{read_timestamp, rfc3339},
};

/// What a line is about.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    /// The first one.
    Head,
    Workspace(Box<WorkspaceLine>),
    Group(Box<MemberLine>),
    Collection(Box<MemberLine>),
    /// One more name of a collection.
    Link(LinkLine),
    /// All lines are there; with the checksum of all bytes before this one.
    End(Option<u32>),
}

/// A workspace.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceLine {
    pub(crate) name: Name,
    pub(crate) uuid: Uuid,
    /// Its directory, in that of the export.
    pub(crate) directory: PathBuf,
    pub(crate) owner: Option<i64>,
    pub(crate) mode: Option<i64>,
    /// `None`: no limit.
    pub(crate) quota_bytes: Option<u64>,
    pub(crate) quota_collections: Option<u64>,
    /// `None`: never.
    pub(crate) expires_ns: Option<i64>,
    pub(crate) ctime_ns: i64,
    pub(crate) controls: String,
    pub(crate) layout: Option<String>,
    pub(crate) indexes: Vec<String>,
    pub(crate) metadata: Metadata,
}

/// A group or collection.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberLine {
    pub(crate) uuid: Uuid,
    /// The group that holds the name; nil = the root.
    pub(crate) parent: Uuid,
    pub(crate) name: Option<Name>,
    /// Its file or directory, in that of the workspace; `None`: what went wrong stands in `error`.
    pub(crate) file: Option<PathBuf>,
    pub(crate) error: Option<String>,
    pub(crate) size: u64,
    pub(crate) crc32c: u32,
    pub(crate) version: u64,
    pub(crate) state: Option<String>,
    pub(crate) mtime_ns: i64,
    /// The time that the file has, where its file system could not take the other one.
    pub(crate) file_mtime_ns: Option<i64>,
    pub(crate) ctime_ns: i64,
    pub(crate) owner: Option<i64>,
    pub(crate) group_id: Option<u32>,
    pub(crate) mode: Option<i64>,
    pub(crate) links: u32,
    pub(crate) controls: Option<String>,
    pub(crate) layout: Option<String>,
    pub(crate) metadata: Metadata,
}

/// One more name.
#[derive(Clone, Debug)]
pub(crate) struct LinkLine {
    pub(crate) uuid: Uuid,
    pub(crate) parent: Uuid,
    pub(crate) name: Name,
    /// `None`: there is no file of that name, as its file system has no hard links.
    pub(crate) file: Option<PathBuf>,
}

fn path_json(path: &Path) -> Json {
    json_name(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

fn parent_json(parent: Uuid) -> Json {
    if parent.is_nil() { Json::Null } else { parent.to_string().into() }
}

fn octal(mode: Option<i64>) -> Json {
    mode.map_or(Json::Null, |mode| format!("{mode:04o}").into())
}

impl Line {
    /// The group or collection that it is about.
    pub(crate) fn member(&self) -> Option<&MemberLine> {
        match self {
            Line::Group(member) | Line::Collection(member) => Some(member),
            _ => None,
        }
    }

    /// As it stands in a sidecar.
    pub(crate) fn to_json(&self) -> Json {
        match self {
            Line::Head => {
                json!({ "is": "export", "version": VERSION, "by": concat!("iov ", env!("CARGO_PKG_VERSION")) })
            }
            Line::Workspace(line) => line.to_json(),
            Line::Group(line) => line.to_json("group"),
            Line::Collection(line) => line.to_json("collection"),
            Line::Link(line) => json!({
                "is": "link",
                "uuid": line.uuid.to_string(),
                "parent": parent_json(line.parent),
                "name": json_name(line.name.as_bytes()),
                "file": line.file.as_deref().map(path_json),
            }),
            Line::End(crc) => json!({ "is": "end", "crc32c": crc.map(|crc| format!("{crc:08x}")) }),
        }
    }

    /// Reads a line.
    pub(crate) fn from_json(text: &str) -> Result<Line> {
        let object: Map<String, Json> =
            serde_json::from_str(text).map_err(|e| Error::corrupt(format!("it is no JSON object: {e}")))?;
        let fields = Fields(&object);
        Ok(match fields.text("is")? {
            "export" => match fields.number("version")? {
                Some(VERSION) => Line::Head,
                other => {
                    return Err(Error::version(format!(
                        "the export has version {}, this release reads {VERSION}: update iov",
                        other.map_or_else(|| "none".to_owned(), |n| n.to_string())
                    )));
                }
            },
            "workspace" => Line::Workspace(Box::new(WorkspaceLine::read(&fields)?)),
            "group" => Line::Group(Box::new(MemberLine::read(&fields)?)),
            "collection" => Line::Collection(Box::new(MemberLine::read(&fields)?)),
            "link" => Line::Link(LinkLine {
                uuid: fields.uuid("uuid")?.ok_or_else(|| fields.wrong("uuid"))?,
                parent: fields.uuid("parent")?.unwrap_or(Uuid::NIL),
                name: fields.name()?.ok_or_else(|| fields.wrong("name"))?,
                file: fields.path("file")?,
            }),
            "end" => Line::End(fields.crc("crc32c")?),
            other => {
                return Err(Error::corrupt(format!("a line is {other:?}, which there is not in version {VERSION}")));
            }
        })
    }
}

impl WorkspaceLine {
    fn to_json(&self) -> Json {
        json!({
            "is": "workspace",
            "name": json_name(self.name.as_bytes()),
            "uuid": self.uuid.to_string(),
            "directory": path_json(&self.directory),
            "owner": self.owner,
            "mode": octal(self.mode),
            "quota_bytes": self.quota_bytes,
            "quota_collections": self.quota_collections,
            "expires": self.expires_ns.map(rfc3339),
            "ctime": rfc3339(self.ctime_ns),
            "controls": self.controls,
            "layout": self.layout,
            "indexes": self.indexes,
            "metadata": values::to_json(self.metadata.iter()),
        })
    }

    fn read(fields: &Fields<'_>) -> Result<WorkspaceLine> {
        let index = |key: &Json| key.as_str().map(str::to_owned).ok_or_else(|| fields.wrong("indexes"));
        Ok(WorkspaceLine {
            name: fields.name()?.ok_or_else(|| fields.wrong("name"))?,
            uuid: fields.uuid("uuid")?.ok_or_else(|| fields.wrong("uuid"))?,
            directory: fields.path("directory")?.ok_or_else(|| fields.wrong("directory"))?,
            owner: fields.number("owner")?.map(|n| n as i64),
            mode: fields.octal("mode")?,
            quota_bytes: fields.number("quota_bytes")?,
            quota_collections: fields.number("quota_collections")?,
            expires_ns: fields.time("expires")?,
            ctime_ns: fields.time("ctime")?.unwrap_or(0),
            controls: fields.text("controls")?.to_owned(),
            layout: fields.maybe("layout")?.map(str::to_owned),
            indexes: fields.list("indexes")?.iter().map(index).collect::<Result<_>>()?,
            metadata: values::from_json(fields.get("metadata"))?,
        })
    }
}

impl MemberLine {
    fn to_json(&self, is: &str) -> Json {
        let mut out = Map::new();
        let mut put = |key: &str, value: Json| drop(out.insert(key.into(), value));
        put("is", is.into());
        put("uuid", self.uuid.to_string().into());
        put("parent", parent_json(self.parent));
        put("name", self.name.as_ref().map_or(Json::Null, |name| json_name(name.as_bytes())));
        put("file", self.file.as_deref().map_or(Json::Null, path_json));
        if let Some(error) = &self.error {
            put("error", error.as_str().into());
        }
        if is == "collection" {
            put("size", self.size.into());
            put("crc32c", format!("{:08x}", self.crc32c).into());
            put("version", self.version.into());
            put("state", self.state.as_deref().into());
            put("links", self.links.into());
        }
        put("mtime", rfc3339(self.mtime_ns).into());
        if let Some(ns) = self.file_mtime_ns {
            put("file_mtime", rfc3339(ns).into());
        }
        put("ctime", rfc3339(self.ctime_ns).into());
        put("owner", self.owner.into());
        put("group_id", self.group_id.into());
        put("mode", octal(self.mode));
        put("controls", self.controls.as_deref().into());
        put("layout", self.layout.as_deref().into());
        put("metadata", values::to_json(self.metadata.iter()));
        Json::Object(out)
    }

    fn read(fields: &Fields<'_>) -> Result<MemberLine> {
        Ok(MemberLine {
            uuid: fields.uuid("uuid")?.ok_or_else(|| fields.wrong("uuid"))?,
            parent: fields.uuid("parent")?.unwrap_or(Uuid::NIL),
            name: fields.name()?,
            file: fields.path("file")?,
            error: fields.maybe("error")?.map(str::to_owned),
            size: fields.number("size")?.unwrap_or(0),
            crc32c: fields.crc("crc32c")?.unwrap_or(0),
            version: fields.number("version")?.unwrap_or(0),
            state: fields.maybe("state")?.map(str::to_owned),
            mtime_ns: fields.time("mtime")?.unwrap_or(0),
            file_mtime_ns: fields.time("file_mtime")?,
            ctime_ns: fields.time("ctime")?.unwrap_or(0),
            owner: fields.number("owner")?.map(|n| n as i64),
            group_id: fields.number("group_id")?.map(|n| n as u32),
            mode: fields.octal("mode")?,
            links: fields.number("links")?.unwrap_or(0) as u32,
            controls: fields.maybe("controls")?.map(str::to_owned),
            layout: fields.maybe("layout")?.map(str::to_owned),
            metadata: values::from_json(fields.get("metadata"))?,
        })
    }

    /// The time that its file should have.
    pub(crate) fn time_of_file(&self) -> i64 {
        self.file_mtime_ns.unwrap_or(self.mtime_ns)
    }
}

/// The fields of a line, checked as they are read: a sidecar comes from anywhere.
struct Fields<'a>(&'a Map<String, Json>);

impl<'a> Fields<'a> {
    fn wrong(&self, field: &str) -> Error {
        let value = self.0.get(field).unwrap_or(&Json::Null);
        Error::corrupt(format!("its field {field:?} cannot be {value}"))
    }

    fn get(&self, field: &str) -> &'a Json {
        self.0.get(field).unwrap_or(&Json::Null)
    }

    fn maybe(&self, field: &str) -> Result<Option<&'a str>> {
        match self.get(field) {
            Json::Null => Ok(None),
            Json::String(text) => Ok(Some(text)),
            _ => Err(self.wrong(field)),
        }
    }

    fn text(&self, field: &str) -> Result<&'a str> {
        self.maybe(field)?.ok_or_else(|| self.wrong(field))
    }

    fn list(&self, field: &str) -> Result<&'a [Json]> {
        self.get(field).as_array().map(Vec::as_slice).ok_or_else(|| self.wrong(field))
    }

    fn number(&self, field: &str) -> Result<Option<u64>> {
        match self.get(field) {
            Json::Null => Ok(None),
            value => value.as_u64().map(Some).ok_or_else(|| self.wrong(field)),
        }
    }

    fn crc(&self, field: &str) -> Result<Option<u32>> {
        let parse = |text| u32::from_str_radix(text, 16).map_err(|_| self.wrong(field));
        self.maybe(field)?.map(parse).transpose()
    }

    fn octal(&self, field: &str) -> Result<Option<i64>> {
        let parse = |text| i64::from_str_radix(text, 8).ok().filter(|n| (0..=0o177_777).contains(n));
        self.maybe(field)?.map(|text| parse(text).ok_or_else(|| self.wrong(field))).transpose()
    }

    fn time(&self, field: &str) -> Result<Option<i64>> {
        self.maybe(field)?.map(|text| read_timestamp(text).ok_or_else(|| self.wrong(field))).transpose()
    }

    fn uuid(&self, field: &str) -> Result<Option<Uuid>> {
        self.maybe(field)?.map(|text| Uuid::parse(text).map_err(|_| self.wrong(field))).transpose()
    }

    fn bytes(&self, field: &str) -> Result<Option<Vec<u8>>> {
        match self.get(field) {
            Json::Null => Ok(None),
            Json::String(text) => Ok(Some(text.clone().into_bytes())),
            other => {
                let hex = other.get("hex").and_then(Json::as_str).and_then(unhex);
                hex.map(Some).ok_or_else(|| self.wrong(field))
            }
        }
    }

    fn name(&self) -> Result<Option<Name>> {
        self.bytes("name")?.map(Name::new).transpose()
    }

    /// A path below a directory: one that leads out of it is none.
    fn path(&self, field: &str) -> Result<Option<PathBuf>> {
        use std::{os::unix::ffi::OsStringExt, path::Component};
        let Some(bytes) = self.bytes(field)? else { return Ok(None) };
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
        let below = path.components().all(|part| matches!(part, Component::Normal(_)));
        if below && path.components().next().is_some() { Ok(Some(path)) } else { Err(self.wrong(field)) }
    }
}
