//! Limits on the texts of drivers and kernels.

use super::*;

#[test]
fn driver_texts_are_truncated() {
    let status = edited(|device| {
        device.product_name = Some("é".repeat(100_000));
        device.problems =
            vec![v1::Problem { what: "x".repeat(100_000), error: "y".repeat(100_000) }];
    });
    let device = status.unwrap().inventory.devices.remove(0);
    assert_eq!(device.product_name, Some("é".repeat(MAX_WORD_BYTES / 2)));
    assert_eq!(device.problems[0].source.len(), MAX_TEXT_BYTES);
    assert_eq!(device.problems[0].error.len(), MAX_TEXT_BYTES);
}

#[test]
fn i12_more_done_steps_than_total_is_rejected() {
    let layout = |done: u32| v1::Layout {
        devices: vec![v1::LayoutDevice {
            pci: "0000:07:00.0".to_owned(),
            progress: Some(v1::LayoutProgress { done, steps: 3, ..v1::LayoutProgress::default() }),
            ..v1::LayoutDevice::default()
        }],
        ..v1::Layout::default()
    };
    let parts = encode(&two_gpus(), &LabelSet::default(), None);
    let read = |done: u32| decode(&with(&parts, "layout", content(&layout(done))));
    assert!(read(3).is_ok());
    let error = read(5).unwrap_err();
    let place = (error.part.as_str(), error.field.as_str());
    assert_eq!(place, ("layout", "devices[0].progress.done"));
}
