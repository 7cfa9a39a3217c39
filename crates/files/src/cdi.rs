//! The CDI specification of our devices, and the container edits taken over from NVIDIA's specification.
//!
//! Source: Container Device Interface 1.1.0, `SPEC.md`. Everything used here exists since version 0.3.0, which is the
//! version we declare; names that begin with a digit, as those of claims, exist since 0.5.0. A runtime rejects a specification with a version that it does not know, or with features that
//! are newer than the declared version.
//!
//! The driver's libraries are not known here: `nvidia-ctk cdi generate` determines which libraries exist, where to
//! mount them and which hooks to run. If its specification is present next to ours, its global container edits are
//! applied to our devices too. Its devices are not used, because it is not regenerated when partitions change.

use octavo_model::device_file::{DeviceFile, DeviceFiles};
use octavo_node::sharing::Unit;
use octavo_node::sharing::injection::{
    CDI_KIND, InjectionError, NO_DEVICES, PERMISSIONS, VISIBLE_DEVICES_VARIABLE, cdi_name,
    unit_files,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

/// Kind of the devices of resource claims. Every claim has a specification of its own.
pub const CLAIM_KIND: &str = "octavo.dev/claim";
/// Kind of the devices described by `nvidia-ctk`.
const NVIDIA_KIND: &str = "nvidia.com/gpu";
/// Lowest CDI version that supports everything we write.
const MIN_CDI_VERSION: CdiVersion = (0, 3, 0);
/// The same for claims, whose device names may begin with a digit.
const MIN_CLAIM_VERSION: CdiVersion = (0, 5, 0);

/// Major, minor and patch version.
type CdiVersion = (u32, u32, u32);

/// Global container edits of NVIDIA's specification, and the CDI version they require.
#[derive(Debug, Clone, PartialEq)]
pub struct DriverEdits {
    version: CdiVersion,
    edits: Map<String, Value>,
}

/// Error while creating a CDI specification.
#[derive(Debug, Error)]
pub enum CdiError {
    /// A unit has no device file.
    #[error(transparent)]
    MissingDeviceFile(#[from] InjectionError),
    /// The specification cannot be serialized.
    #[error("cannot write a CDI description as JSON")]
    Json(#[source] serde_json::Error),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CdiSpec {
    cdi_version: String,
    kind: &'static str,
    devices: Vec<Device>,
    container_edits: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: ContainerEdits,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerEdits {
    device_nodes: Vec<DeviceNode>,
}

#[derive(Serialize)]
struct DeviceNode {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    major: u32,
    minor: u32,
    permissions: &'static str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NvidiaSpec {
    cdi_version: String,
    kind: String,
    #[serde(default)]
    container_edits: Map<String, Value>,
}

impl From<&DeviceFile> for DeviceNode {
    fn from(file: &DeviceFile) -> Self {
        Self {
            path: file.path.clone(),
            kind: "c",
            major: file.number.major,
            minor: file.number.minor,
            permissions: PERMISSIONS,
        }
    }
}

impl DriverEdits {
    /// Parses NVIDIA's specification, in JSON or YAML. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let read: NvidiaSpec = serde_saphyr::from_str(text).ok()?;
        let mut parts = read.cdi_version.split('.').map(str::parse);
        let mut part = || parts.next()?.ok();
        let version = (part()?, part()?, part()?);
        (read.kind == NVIDIA_KIND && parts.next().is_none())
            .then_some(Self { version, edits: read.container_edits })
    }
}

/// Writes our specification of these units, without duplicates. The text ends with a line feed.
pub fn write_spec(
    units: &[Unit],
    files: &DeviceFiles,
    driver: Option<&DriverEdits>,
) -> Result<String, CdiError> {
    let named = units.iter().map(|unit| (cdi_name(&unit.uuid), unit));
    write_kind((CDI_KIND, MIN_CDI_VERSION), named, files, driver)
}

/// Writes the specification of a resource claim: its devices of [`CLAIM_KIND`] with their names. The text ends with a
/// line feed.
pub fn write_claim_spec(
    devices: &[(String, Unit)],
    files: &DeviceFiles,
    driver: Option<&DriverEdits>,
) -> Result<String, CdiError> {
    let named = devices.iter().map(|(name, unit)| (name.clone(), unit));
    write_kind((CLAIM_KIND, MIN_CLAIM_VERSION), named, files, driver)
}

fn write_kind<'a>(
    (kind, version): (&'static str, CdiVersion),
    units: impl Iterator<Item = (String, &'a Unit)>,
    files: &DeviceFiles,
    driver: Option<&DriverEdits>,
) -> Result<String, CdiError> {
    let mut devices: Vec<Device> = Vec::new();
    for (name, unit) in units {
        if devices.iter().any(|device| device.name == name) {
            continue;
        }
        let device_nodes = unit_files(files, unit)?.iter().map(DeviceNode::from).collect();
        devices.push(Device { name, container_edits: ContainerEdits { device_nodes } });
    }
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    let (a, b, c) = driver.map_or(version, |driver| driver.version.max(version));
    let description = CdiSpec {
        cdi_version: format!("{a}.{b}.{c}"),
        kind,
        devices,
        container_edits: common_edits(files, driver).map_err(CdiError::Json)?,
    };
    let mut text = serde_json::to_string_pretty(&description).map_err(CdiError::Json)?;
    text.push('\n');
    Ok(text)
}

/// Container edits for every container: NVIDIA's, and ours where they differ.
fn common_edits(
    files: &DeviceFiles,
    driver: Option<&DriverEdits>,
) -> Result<Map<String, Value>, serde_json::Error> {
    let mut edits = driver.map(|driver| driver.edits.clone()).unwrap_or_default();
    let list = |edits: &mut Map<String, Value>, key: &str| match edits.remove(key) {
        Some(Value::Array(list)) => list,
        Some(_) | None => Vec::new(),
    };
    let mut variables = list(&mut edits, "env");
    // Otherwise NVIDIA's runtime would add the devices requested by the image to the allocated ones.
    variables.retain(|variable| {
        let text = variable.as_str().unwrap_or_default();
        text.split('=').next() != Some(VISIBLE_DEVICES_VARIABLE)
    });
    variables.push(format!("{VISIBLE_DEVICES_VARIABLE}={NO_DEVICES}").into());
    edits.insert("env".to_owned(), variables.into());
    let mut nodes = list(&mut edits, "deviceNodes");
    nodes.retain(|node| {
        let path = node.get("path").and_then(Value::as_str);
        let mut ours = files.common.iter();
        !ours.any(|file| Some(file.path.as_str()) == path)
    });
    for file in &files.common {
        nodes.push(serde_json::to_value(DeviceNode::from(file))?);
    }
    if !nodes.is_empty() {
        edits.insert("deviceNodes".to_owned(), nodes.into());
    }
    Ok(edits)
}

#[cfg(test)]
mod tests {
    use octavo_model::device_file::DeviceNumber;
    use octavo_model::id::PciAddress;
    use octavo_node::sharing::Partition;
    use serde_json::json;

    use super::*;

    fn file(path: &str, major: u32, minor: u32) -> DeviceFile {
        DeviceFile { path: path.to_owned(), number: DeviceNumber { major, minor } }
    }

    fn pci() -> PciAddress {
        PciAddress::new(0, 7, 0, 0).unwrap()
    }

    fn files() -> DeviceFiles {
        DeviceFiles {
            common: vec![file("/dev/nvidiactl", 195, 255)],
            devices: [(pci(), file("/dev/nvidia3", 195, 3))].into(),
            instances: [
                ((pci(), 1, None), file("/dev/nvidia-caps/nvidia-cap12", 235, 12)),
                ((pci(), 1, Some(0)), file("/dev/nvidia-caps/nvidia-cap13", 235, 13)),
            ]
            .into(),
        }
    }

    fn unit(uuid: &str, partition: Option<(u32, u32)>) -> Unit {
        Unit {
            uuid: uuid.to_owned(),
            pci: pci(),
            partition: partition.map(|(gpu_instance, compute_instance)| Partition {
                gpu_instance,
                compute_instance,
                profile: "1g.10gb".parse().unwrap(),
            }),
            replicas: Some(4),
            memory: None,
            memory_per_replica: None,
            numa_node: None,
        }
    }

    fn written(units: &[Unit], driver: Option<&DriverEdits>) -> Value {
        serde_json::from_str(&write_spec(units, &files(), driver).unwrap()).unwrap()
    }

    #[test]
    fn spec_lists_each_unit_once_with_its_device_numbers() {
        let units = [unit("MIG-1", Some((1, 0))), unit("GPU-1", None), unit("MIG-1", Some((1, 0)))];
        let gpu = json!({"path": "/dev/nvidia3", "type": "c", "major": 195, "minor": 3, "permissions": "rw"});
        let cap = |minor: u32| json!({"path": format!("/dev/nvidia-caps/nvidia-cap{minor}"), "type": "c", "major": 235, "minor": minor, "permissions": "rw"});
        let expected = json!({
            "cdiVersion": "0.3.0", "kind": "octavo.dev/gpu",
            "devices": [
                {"name": "GPU-1", "containerEdits": {"deviceNodes": [gpu]}},
                {"name": "MIG-1", "containerEdits": {"deviceNodes": [gpu, cap(12), cap(13)]}},
            ],
            "containerEdits": {
                "env": ["NVIDIA_VISIBLE_DEVICES=void"],
                "deviceNodes": [{"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255, "permissions": "rw"}],
            },
        });
        assert_eq!(written(&units, None), expected);
    }

    #[test]
    fn spec_of_a_claim_has_the_names_of_its_devices() {
        let devices = [("uid-1-gpu-a".to_owned(), unit("MIG-1", Some((1, 0))))];
        let text = write_claim_spec(&devices, &files(), None).unwrap();
        let spec: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&spec["kind"], &spec["cdiVersion"]),
            (&json!("octavo.dev/claim"), &json!("0.5.0"))
        );
        assert_eq!(spec["devices"][0]["name"], "uid-1-gpu-a");
        let nodes = spec["devices"][0]["containerEdits"]["deviceNodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 3);
    }

    #[test]
    fn nvidia_container_edits_are_applied() {
        let text = "
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices: [{name: '0', containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}]
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void, A=1]
  deviceNodes: [{path: /dev/nvidiactl}, {path: /dev/nvidia-modeset}]
  hooks: [{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache]}]
  mounts: [{hostPath: /usr/lib/libcuda.so.570, containerPath: /usr/lib/libcuda.so.570, options: [ro, bind]}]
";
        let driver = DriverEdits::parse(text).unwrap();
        let spec = written(&[unit("GPU-1", None)], Some(&driver));
        assert_eq!(spec["cdiVersion"], "0.5.0");
        let edits = &spec["containerEdits"];
        assert_eq!(edits["env"], json!(["A=1", "NVIDIA_VISIBLE_DEVICES=void"]));
        assert_eq!(edits["mounts"][0]["hostPath"], json!("/usr/lib/libcuda.so.570"));
        assert_eq!(edits["hooks"][0]["args"][1], json!("update-ldcache"));
        let nodes = edits["deviceNodes"].as_array().unwrap();
        let paths: Vec<&Value> = nodes.iter().map(|node| &node["path"]).collect();
        assert_eq!(paths, ["/dev/nvidia-modeset", "/dev/nvidiactl"]);
        // NVIDIA's own devices are not taken over.
        assert_eq!(spec["devices"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn i12_foreign_cdi_spec_is_ignored() {
        for text in [
            "",
            "{",
            "cdiVersion: 0.5.0\nkind: vendor.com/net\n",
            "cdiVersion: newest\nkind: nvidia.com/gpu\n",
            "cdiVersion: 0.5.0.1\nkind: nvidia.com/gpu\n",
            "kind: nvidia.com/gpu\n",
            "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits: []\n",
        ] {
            assert_eq!(DriverEdits::parse(text), None, "{text}");
        }
        let odd =
            "cdiVersion: 0.3.0\nkind: nvidia.com/gpu\ncontainerEdits: {env: 1, deviceNodes: no}\n";
        let driver = DriverEdits::parse(odd).unwrap();
        let spec = written(&[], Some(&driver));
        assert_eq!(spec["containerEdits"]["env"], json!(["NVIDIA_VISIBLE_DEVICES=void"]));
    }
}
