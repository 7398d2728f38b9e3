// A stand-in for NVIDIA's driver, libcuda.so.1, with what lapse/ops/cuda/driver.cpp calls: an image is the name of a
// kernel, and a launch is a call back to the test, which runs that kernel by Triton's interpreter.
#include <cstring>

extern "C" {

using Launch = int (*)(const char* name, const unsigned* grid, unsigned threads, unsigned shared, void** arguments);

Launch mock_launch = nullptr;  // what the test does with a launch; an error if not 0
int mock_architecture = 90;    // compute capability, times ten
int mock_loads = 0;            // images so far
int mock_shared = 0;           // the most that was asked for

int cuCtxGetDevice(int* device) {
  *device = 0;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDevicePrimaryCtxRetain(void**, int) { return 1; }  // one is current here
int cuCtxSetCurrent(void*) { return 1; }

int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? mock_architecture / 10 : mock_architecture % 10;
  return attribute == 75 || attribute == 76 ? 0 : 1;
}

int cuModuleLoadData(void** module, const void* image) {
  ++mock_loads;
  *module = const_cast<void*>(image);
  return std::strncmp(static_cast<const char*>(image), "broken", 6) == 0 ? 209 : 0;
}

int cuModuleGetFunction(void** function, void* module, const char*) {
  *function = module;
  return 0;
}

int cuFuncSetAttribute(void*, int attribute, int value) {
  mock_shared = value > mock_shared ? value : mock_shared;
  return attribute == 8 ? 0 : 1;
}

int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned, unsigned,
                   unsigned shared, void*, void** arguments, void**) {
  const unsigned grid[3] = {x, y, z};
  return mock_launch(static_cast<const char*>(function), grid, threads, shared, arguments);
}

int cuGetErrorString(int error, const char** text) {
  *text = error == 209 ? "no kernel image is available for execution on the device" : "a mock's error";
  return 0;
}
}
