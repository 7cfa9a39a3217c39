//! Format of the catalog data file, and generation of its Rust table. An invalid entry fails the build with its ID.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

use serde::Deserialize;

/// Words in an ID that describe the form factor. A type does not contain them, because users and node selectors do not
/// distinguish form factors: an H200 is an H200.
const FORM_FACTORS: &[&str] =
    &["sxm2", "sxm3", "sxm4", "sxm5", "sxm6", "pcie", "nvl", "server", "fhhl", "dgxs"];

#[derive(Deserialize)]
struct Catalog {
    sources: BTreeMap<String, String>,
    accelerators: Vec<Accelerator>,
    not_accelerators: Vec<NotAccelerator>,
}

/// A device that resembles an accelerator but is not one.
#[derive(Deserialize)]
struct NotAccelerator {
    id: String,
    what: String,
    sources: Vec<String>,
}

#[derive(Deserialize)]
struct Accelerator {
    id: String,
    vendor: String,
    name: String,
    architecture: String,
    memory_gb: Option<u32>,
    memory_unit: String,
    #[serde(default)]
    memory_mib: Option<u32>,
    memory_bandwidth_gbs: Option<f64>,
    bf16_tflops_dense: Option<f64>,
    fp16_tflops_dense: Option<f64>,
    fp8_tflops_dense: Option<f64>,
    compute_capability: Option<String>,
    interconnect: Option<Link>,
    pci_ids: Vec<String>,
    sources: Vec<String>,
}

#[derive(Deserialize)]
struct Link {
    kind: String,
}

/// Generates the Rust source of the tables in `json`.
pub(crate) fn generate_table(json: &str) -> Result<String, Box<dyn Error>> {
    let catalog: Catalog = serde_json::from_str(json)?;
    let mut text = String::from("const TABLE: &[Facts] = &[\n");
    let cited = |id: &str, sources: &[String]| {
        let unknown = sources.iter().find(|key| !catalog.sources.contains_key(*key));
        match unknown {
            Some(key) => Err(format!("{id}: there is no source {key}")),
            None if sources.is_empty() => Err(format!("{id}: no source")),
            None => Ok(()),
        }
    };
    for accelerator in &catalog.accelerators {
        cited(&accelerator.id, &accelerator.sources)?;
        let entry = accelerator.entry().map_err(|error| format!("{}: {error}", accelerator.id))?;
        text.push_str(&entry);
    }
    text.push_str("];\n\nconst OTHERS: &[NotAccelerator] = &[\n");
    for other in &catalog.not_accelerators {
        cited(&other.id, &other.sources)?;
        text.push_str(&other.entry()?);
    }
    text.push_str("];\n\nconst SOURCES: &[(&str, &str)] = &[\n");
    for (key, citation) in &catalog.sources {
        writeln!(text, "    ({key:?}, {citation:?}),")?;
    }
    text.push_str("];\n");
    Ok(text)
}

impl NotAccelerator {
    fn entry(&self) -> Result<String, Box<dyn Error>> {
        let (vendor, device) = match self.id.split_once(':') {
            Some((vendor, device)) => (vendor, Some(u16::from_str_radix(device, 16)?)),
            None => (self.id.as_str(), None),
        };
        let vendor = u16::from_str_radix(vendor, 16)?;
        Ok(format!(
            "    NotAccelerator {{ vendor: {vendor}, device: {device:?}, description: {:?} }},\n",
            self.what
        ))
    }
}

impl Accelerator {
    fn entry(&self) -> Result<String, Box<dyn Error>> {
        let mut text = format!(
            "    Facts {{ sku: {:?}, vendor: {}, model: {:?}, type_name: {:?}, name: {:?}, architecture: {:?}, ",
            self.id,
            self.vendor()?,
            self.model(),
            self.type_name(),
            self.name,
            self.architecture,
        );
        write!(
            text,
            "memory: {}, visible_memory_mib: {:?}, memory_bandwidth_gbs: {:?}, tflops: Tflops {{ bf16: {:?}, fp16: {:?}, fp8: {:?} }}, ",
            self.memory()?,
            self.memory_mib,
            self.memory_bandwidth_gbs,
            self.bf16_tflops_dense,
            self.fp16_tflops_dense,
            self.fp8_tflops_dense,
        )?;
        let pci_ids: Vec<String> =
            self.pci_ids.iter().map(|text| pci_id(text)).collect::<Result<_, _>>()?;
        writeln!(
            text,
            "compute_capability: {}, interconnect: {}, pci_ids: &[{}] }},",
            self.compute_capability()?,
            self.interconnect()?,
            pci_ids.join(", "),
        )?;
        Ok(text)
    }

    fn vendor(&self) -> Result<&'static str, String> {
        Ok(match self.vendor.as_str() {
            "nvidia" => "Vendor::Nvidia",
            "amd" => "Vendor::Amd",
            "aws" => "Vendor::Aws",
            "intel" => "Vendor::Other(0x8086)",
            "habana" => "Vendor::Other(0x1da3)",
            other => return Err(format!("no vendor is called {other:?}")),
        })
    }

    /// Type without memory size: the ID without form factor and size.
    fn model(&self) -> String {
        let size = self.memory_gb.map(|size| format!("{size}gb"));
        let words: Vec<&str> = self
            .id
            .split('-')
            .filter(|word| !FORM_FACTORS.contains(word) && Some(*word) != size.as_deref())
            .collect();
        words.join("-")
    }

    fn type_name(&self) -> String {
        match self.memory_gb {
            Some(size) => format!("{}-{size}gb", self.model()),
            None => self.model(),
        }
    }

    fn memory(&self) -> Result<String, String> {
        let unit = match self.memory_unit.as_str() {
            "GB" => "MemoryUnit::Gigabytes",
            "GiB" => "MemoryUnit::Gibibytes",
            other => return Err(format!("no unit of memory is called {other:?}")),
        };
        Ok(match self.memory_gb {
            Some(size) => format!("Some(MarketedMemory {{ size: {size}, unit: {unit} }})"),
            None => "None".to_owned(),
        })
    }

    fn compute_capability(&self) -> Result<String, Box<dyn Error>> {
        let Some(text) = &self.compute_capability else {
            return Ok("None".to_owned());
        };
        let (major, minor) = text.split_once('.').ok_or("compute_capability is not X.Y")?;
        let (major, minor): (u32, u32) = (major.parse()?, minor.parse()?);
        Ok(format!("Some(ComputeCapability {{ major: {major}, minor: {minor} }})"))
    }

    fn interconnect(&self) -> Result<String, String> {
        let Some(link) = &self.interconnect else {
            return Ok("None".to_owned());
        };
        let kind = match link.kind.as_str() {
            "pcie" => "Pcie",
            "nvlink" => "NvLink",
            "nvlink-bridge" => "NvLinkBridge",
            "nvlink-c2c" => "NvLinkC2c",
            "infinity-fabric" => "InfinityFabric",
            "neuronlink" => "NeuronLink",
            other => return Err(format!("no interconnect is called {other:?}")),
        };
        Ok(format!("Some(LinkKind::{kind})"))
    }
}

/// Converts `10de:20b2`, optionally followed by the subsystem IDs.
fn pci_id(text: &str) -> Result<String, Box<dyn Error>> {
    let parts: Vec<u16> =
        text.split(':').map(|part| u16::from_str_radix(part, 16)).collect::<Result<_, _>>()?;
    let (device, subsystem) = match *parts.as_slice() {
        [vendor, device] => ((vendor, device), None),
        [vendor, device, by, board] => ((vendor, device), Some((by, board))),
        _ => return Err(format!("{text:?} is not vendor:device").into()),
    };
    Ok(format!("PciPattern {{ device: {device:?}, subsystem: {subsystem:?} }}"))
}
