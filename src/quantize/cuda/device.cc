// SPDX-License-Identifier: Apache-2.0
#include "quantize/cuda/device.h"

#include <dlfcn.h>

#include <array>
#include <bit>
#include <limits>

#include "base/check.h"

namespace crossdock::quantize {
namespace {

constexpr const char* kPlugin = "libcrossdock_fp8_cuda.so";

/// The folder of the program, or of the shared library, that this function is part of; with a slash at its end.
std::string OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/') + 1);
}

std::string LastError() {
  const char* text = dlerror();
  return text != nullptr ? text : "no reason given";
}

Error NotThere(std::string found) {
  return MakeError(ErrorCode::kUnsupported, "FP8 on a CUDA device needs a plugin that cannot be loaded")
      .WithExpected(std::string("`") + kPlugin + "` beside the program")
      .WithFound(std::move(found))
      .WithHint("build where nvcc is, or quantize on the CPU");
}

std::int32_t TypeOf(DType dtype) {
  CROSSDOCK_CHECK(dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32);
  if (dtype == DType::kF32) return kCrossdockFp8F32;
  return dtype == DType::kBF16 ? kCrossdockFp8Bf16 : kCrossdockFp8F16;
}

CrossdockFp8Request RequestOf(CrossdockFp8Operation operation, const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols) {
  CrossdockFp8Request request{};
  request.operation = operation;
  request.type = TypeOf(dtype);
  request.w = w;
  request.rows = rows;
  request.cols = cols;
  return request;
}

}  // namespace

Result<CudaDevice> CudaDevice::Open() {
  const std::string beside = OwnFolder() + kPlugin;
  void* found = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  return Open(found != nullptr ? beside : kPlugin);
}

Result<CudaDevice> CudaDevice::Open(const std::string& plugin) {
  void* library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return NotThere(LastError());
  const auto version = reinterpret_cast<CrossdockFp8Version*>(dlsym(library, CROSSDOCK_FP8_VERSION_FUNCTION));
  const auto probe = reinterpret_cast<CrossdockFp8Probe*>(dlsym(library, CROSSDOCK_FP8_PROBE_FUNCTION));
  const auto run = reinterpret_cast<CrossdockFp8Run*>(dlsym(library, CROSSDOCK_FP8_RUN_FUNCTION));
  if (version == nullptr || probe == nullptr || run == nullptr || version() != kCrossdockFp8PluginVersion) {
    dlclose(library);
    return NotThere("`" + plugin + "`, which was not built for this version");
  }
  std::array<char, 256> reason{};
  if (probe(reason.data(), reason.size()) != 0) {
    dlclose(library);
    return MakeError(ErrorCode::kUnsupported, "FP8 on a CUDA device: there is no device to be used")
        .WithExpected("an NVIDIA GPU and its driver")
        .WithFound(reason.data())
        .WithHint("quantize on the CPU");
  }
  return CudaDevice(run);
}

Status CudaDevice::Run(CrossdockFp8Request& request) const {
  if (run_(&request) == 0) return OkStatus();
  return MakeError(ErrorCode::kIo, "the CUDA device failed while it quantized").WithFound(request.error).WithHint("try again on the CPU");
}

Result<NonFinite> CudaDevice::QuantizeBlocks(const std::byte* w, DType dtype, std::int64_t rows, std::int64_t cols,
                                             const Fp8Rule& rule, std::byte* q, float* s) const {
  CROSSDOCK_CHECK(rule.block_rows > 0 && rule.block_cols > 0);
  CrossdockFp8Request request = RequestOf(kCrossdockFp8Blocks, w, dtype, rows, cols);
  request.block_rows = rule.block_rows;
  request.block_cols = rule.block_cols;
  request.ue8m0 = rule.scales == ScaleFormat::kUe8m0 ? 1 : 0;
  request.relax = rule.arithmetic == Arithmetic::kRelax ? 1 : 0;
  request.q = q;
  request.s = s;
  CROSSDOCK_RETURN_IF_ERROR(Run(request));
  return NonFinite{request.nonfinite_count, request.nonfinite_first};
}

Result<float> CudaDevice::AmaxOf(const std::byte* w, DType dtype, std::int64_t count, NonFinite* found) const {
  CrossdockFp8Request request = RequestOf(kCrossdockFp8Peak, w, dtype, 1, count);
  CROSSDOCK_RETURN_IF_ERROR(Run(request));
  if (found != nullptr) *found = {request.nonfinite_count, request.nonfinite_first};
  return request.peak > 0x7F800000U ? std::numeric_limits<float>::quiet_NaN() : std::bit_cast<float>(request.peak);
}

Status CudaDevice::QuantizeWithScale(const std::byte* w, DType dtype, std::int64_t count, float scale, const Fp8Rule& rule,
                                     std::byte* q) const {
  CrossdockFp8Request request = RequestOf(kCrossdockFp8WithScale, w, dtype, 1, count);
  request.scale = scale;
  request.relax = rule.arithmetic == Arithmetic::kRelax ? 1 : 0;
  request.q = q;
  return Run(request);
}

}  // namespace crossdock::quantize
