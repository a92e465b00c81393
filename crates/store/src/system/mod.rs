//! The machine as the system reports it: memory of this process and its limits, temperatures.

mod limit;
mod processor;
mod thermal;
mod usage;

pub use limit::{MachineMemory, memory_available, memory_limit};
pub use processor::processor_name;
pub use thermal::{ThermalReading, read_thermal, thermal_zones};
pub use usage::{Usage, read_bytes};
