//! GPM: utilization of GPU instances between two samples.

use nvml_sim::model::{Process, ProcessKind, ProcessLoad, Slot};
use nvml_wrapper_sys::bindings as sys;

use crate::support::{Machine, Nvml, call};

const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const ARGUMENT_VERSION_MISMATCH: u32 = 25;

const GRAPHICS_UTIL: u32 = sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL;
const SM_UTIL: u32 = sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL;
const DRAM_BW_UTIL: u32 = sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL;
const SM_OCCUPANCY: u32 = sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_OCCUPANCY;

/// GPU instances 1 and 13 of the first GPU.
const MACHINE: &str = "
machine: gpm
driver: 580.95.05
gpus:
  - {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb, start: 0}, {profile: 1g.10gb, start: 6}]}
  - {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb}]}
  - {board: B200_180GB}
";

impl Nvml {
    fn sample_buffer(&self) -> sys::nvmlGpmSample_t {
        let mut sample = std::ptr::null_mut();
        assert_eq!(call!(self, nvmlGpmSampleAlloc, &raw mut sample), 0);
        sample
    }

    /// A sample of a GPU instance of the first GPU.
    fn sample(&self, instance: u32) -> sys::nvmlGpmSample_t {
        let sample = self.sample_buffer();
        assert_eq!(call!(self, nvmlGpmMigSampleGet, self.gpu(0), instance, sample), 0);
        sample
    }

    fn metrics(
        &self,
        samples: [sys::nvmlGpmSample_t; 2],
        ids: &[u32],
    ) -> Result<Vec<Result<f64, u32>>, u32> {
        let mut request = request(samples, ids);
        match call!(self, nvmlGpmMetricsGet, &raw mut request) {
            0 => {
                let metrics = request.metrics.iter().take(ids.len());
                let result = |one: &sys::nvmlGpmMetric_t| match one.nvmlReturn {
                    0 => Ok(one.value),
                    code => Err(code),
                };
                assert!(request.metrics[ids.len()..].iter().all(|one| one.nvmlReturn == 77));
                Ok(metrics.map(result).collect())
            }
            code => Err(code),
        }
    }
}

fn request(samples: [sys::nvmlGpmSample_t; 2], ids: &[u32]) -> sys::nvmlGpmMetricsGet_t {
    let metric = |id: u32| sys::nvmlGpmMetric_t {
        metricId: id,
        nvmlReturn: 77,
        value: -1.0,
        metricInfo: sys::nvmlGpmMetric_t__bindgen_ty_1 {
            shortName: std::ptr::null_mut(),
            longName: std::ptr::null_mut(),
            unit: std::ptr::null_mut(),
        },
    };
    let mut request = sys::nvmlGpmMetricsGet_t {
        version: sys::NVML_GPM_METRICS_GET_VERSION,
        numMetrics: u32::try_from(ids.len()).unwrap(),
        sample1: samples[0],
        sample2: samples[1],
        metrics: [metric(0); 210],
    };
    for (to, id) in request.metrics.iter_mut().zip(ids) {
        *to = metric(*id);
    }
    request
}

/// A process in an instance of the first GPU, with this load.
fn add_process(machine: &Machine, pid: u32, gi: u32, percent: u32) {
    machine.change(|world| {
        let gpu_uuid = world.gpus[0].uuid.clone();
        let name = "vllm".to_owned();
        let kind = ProcessKind::Compute;
        let (gi, ci) = (Some(gi), Some(0));
        world.add_process(Process { pid, name, gpu_uuid, gi, ci, memory_mib: 9, kind })?;
        world.set_loads(&[ProcessLoad { pid, percent, memory_mib: 9 }])
    });
}

/// The GPU instances of the first GPU, by id.
fn instances(machine: &Machine) -> Vec<u32> {
    machine.geometry().into_iter().map(|(_, id)| id).collect()
}

#[test]
fn metrics_are_those_of_the_gpu_instance_in_percent_of_it() {
    let machine = Machine::new(MACHINE);
    let nvml = machine.open();
    let [large, small] = instances(&machine)[..] else { panic!() };
    add_process(&machine, 1, large, 80);
    add_process(&machine, 2, large, 70);
    let first = [nvml.sample(large), nvml.sample(small)];
    add_process(&machine, 3, small, 40);
    let second = [nvml.sample(large), nvml.sample(small)];
    let ids = [GRAPHICS_UTIL, SM_UTIL, DRAM_BW_UTIL, SM_OCCUPANCY];
    let between = |at: usize| nvml.metrics([first[at], second[at]], &ids).unwrap();
    assert_eq!(between(0), [Ok(100.0), Ok(100.0), Ok(75.0), Err(NOT_SUPPORTED)]);
    assert_eq!(between(1), [Ok(20.0), Ok(20.0), Ok(10.0), Err(NOT_SUPPORTED)]);
    // Three of seven slices are busy, and one of them to 40 %.
    let gpu = machine.store().read().unwrap().gpu(Slot(0)).unwrap().clone();
    assert_eq!(gpu.utilization.0, 34 + 30 + 5);
    assert_eq!(nvml.metrics([first[0], second[0]], &[]), Ok(Vec::new()));
}

#[test]
fn handle_of_a_mig_device_reports_its_gpu_instance() {
    let machine = Machine::new(MACHINE);
    let nvml = machine.open();
    add_process(&machine, 1, instances(&machine)[0], 30);
    let mut mig = std::ptr::null_mut();
    assert_eq!(call!(nvml, nvmlDeviceGetMigDeviceHandleByIndex, nvml.gpu(0), 0, &raw mut mig), 0);
    let samples = [nvml.sample_buffer(), nvml.sample_buffer()];
    for sample in samples {
        assert_eq!(call!(nvml, nvmlGpmSampleGet, mig, sample), 0);
    }
    assert_eq!(nvml.metrics(samples, &[SM_UTIL]), Ok(vec![Ok(30.0)]));
    for sample in samples {
        assert_eq!(call!(nvml, nvmlGpmSampleGet, nvml.gpu(0), sample), 0);
    }
    assert_eq!(nvml.metrics(samples, &[SM_UTIL]), Ok(vec![Ok(12.0)]), "of the whole GPU");
}

#[test]
fn gpm_exists_from_hopper_on() {
    let machine = Machine::new(MACHINE);
    let nvml = machine.open();
    let supported = [0, 1, 2].map(|index| {
        let mut support = sys::nvmlGpmSupport_t { version: 1, isSupportedDevice: 9 };
        let code = call!(nvml, nvmlGpmQueryDeviceSupport, nvml.gpu(index), &raw mut support);
        (code, support.isSupportedDevice)
    });
    assert_eq!(supported, [(0, 1), (0, 0), (0, 1)]);
    let sample = nvml.sample_buffer();
    assert_eq!(call!(nvml, nvmlGpmMigSampleGet, nvml.gpu(1), 2, sample), NOT_SUPPORTED);
    assert_eq!(call!(nvml, nvmlGpmSampleGet, nvml.gpu(1), sample), NOT_SUPPORTED);
    assert_eq!(call!(nvml, nvmlGpmSampleGet, nvml.gpu(2), sample), 0);
    assert_eq!(
        call!(nvml, nvmlGpmMigSampleGet, nvml.gpu(2), 0, sample),
        INVALID_ARGUMENT,
        "no MIG"
    );
    let mut support = sys::nvmlGpmSupport_t { version: 2, isSupportedDevice: 0 };
    let code = call!(nvml, nvmlGpmQueryDeviceSupport, nvml.gpu(0), &raw mut support);
    assert_eq!(code, ARGUMENT_VERSION_MISMATCH);
}

#[test]
fn samples_must_be_of_one_instance_and_in_order() {
    let machine = Machine::new(MACHINE);
    let nvml = machine.open();
    let [large, small] = instances(&machine)[..] else { panic!() };
    let (first, other, second) = (nvml.sample(large), nvml.sample(small), nvml.sample(large));
    let metrics = |samples| nvml.metrics(samples, &[SM_UTIL]);
    assert_eq!(metrics([first, second]), Ok(vec![Ok(0.0)]));
    for samples in [[second, first], [first, other], [first, first], [first, nvml.sample_buffer()]]
    {
        assert_eq!(metrics(samples), Err(INVALID_ARGUMENT));
    }
    let mut newer = request([first, second], &[SM_UTIL]);
    newer.version = 2;
    assert_eq!(call!(nvml, nvmlGpmMetricsGet, &raw mut newer), ARGUMENT_VERSION_MISMATCH);
}

#[test]
fn instance_created_with_the_id_of_another_is_another_instance() {
    let machine = Machine::new(MACHINE);
    let nvml = machine.open();
    let id = instances(&machine)[1];
    let first = nvml.sample(id);
    machine.change(|world| {
        world.destroy_ci(Slot(0), id, 0)?;
        world.destroy_gi(Slot(0), id)
    });
    let sample = nvml.sample_buffer();
    let code = call!(nvml, nvmlGpmMigSampleGet, nvml.gpu(0), id, sample);
    assert_eq!(code, INVALID_ARGUMENT);
    machine.change(|world| world.create_gi(Slot(0), 19, None));
    assert_eq!(instances(&machine)[1], id);
    let second = nvml.sample(id);
    assert_eq!(nvml.metrics([first, second], &[SM_UTIL]), Err(INVALID_ARGUMENT));
}

#[test]
fn sample_ends_when_it_is_freed_and_with_the_session() {
    let machine = Machine::new(MACHINE);
    let nvml = machine.open();
    let id = instances(&machine)[0];
    let (first, second) = (nvml.sample(id), nvml.sample(id));
    assert_eq!(call!(nvml, nvmlGpmSampleFree, first), 0);
    assert_eq!(call!(nvml, nvmlGpmSampleFree, first), INVALID_ARGUMENT);
    assert_eq!(nvml.metrics([first, second], &[SM_UTIL]), Err(INVALID_ARGUMENT));
    assert_eq!(call!(nvml, nvmlGpmSampleFree, nvml.gpu(0).cast()), INVALID_ARGUMENT);
    assert_eq!(call!(nvml, nvmlShutdown), 0);
    assert_eq!(nvml.init(), 0);
    assert_eq!(call!(nvml, nvmlGpmSampleFree, second), INVALID_ARGUMENT);
}
