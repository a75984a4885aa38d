// The C ABI: GPUs, their memory and streams, and weights on them.
#include <string>

#include "api/handles.h"

using namespace swordfish;
using namespace swordfish::api;

namespace {

Device gpu_device(int index) { return {Device::Kind::cuda, index}; }

sf_weight* on_gpu(const std::string& weight_name, DeviceWeight gpu) {
  PackedWeight named;
  named.name = weight_name;
  return new sf_weight{std::move(named), false, std::move(gpu)};
}

}  // namespace

extern "C" {

sf_status sf_gpus(sf_gpus_info* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    const Gpus& all = gpus();
    sf_gpus_info o{};
    o.count = static_cast<int>(all.found.size());
    o.driver = all.driver;
    o.runtime = all.runtime;
    o.machine_code = all.machine_code.empty() ? "" : all.machine_code.data();
    o.none = all.none.empty() ? nullptr : all.none.c_str();
    return write_struct(o, out);
  });
}

sf_status sf_gpu(int index, sf_gpu_info* out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    const Gpus& all = gpus();
    if (index < 0 || static_cast<std::size_t>(index) >= all.found.size()) return usable_gpu(gpu_device(index)).status();
    const GpuInfo& gpu = all.found[static_cast<std::size_t>(index)];
    sf_gpu_info o{};
    o.name = gpu.name.c_str();
    o.compute_capability = gpu.arch;
    o.sms = gpu.sms;
    o.memory = static_cast<std::uint64_t>(gpu.memory);
    o.l2 = static_cast<std::uint64_t>(gpu.l2);
    const std::string& unusable = why_unusable(index);
    o.unusable = unusable.empty() ? nullptr : unusable.c_str();
    return write_struct(o, out);
  });
}

sf_status sf_gpu_alloc(int index, size_t size, void** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    SF_ASSIGN(DeviceBuffer buffer, DeviceBuffer::allocate(gpu_device(index), size));
    *out = buffer.release();
    return {};
  });
}
sf_status sf_gpu_free(int index, void* memory) {
  return guarded([&]() -> Status {
    if (!memory) return {};
    SF_TRY(usable_gpu(gpu_device(index)).status());
    DeviceBuffer::adopt(gpu_device(index), memory);
    return {};
  });
}
sf_status sf_gpu_copy(int index, void* to, const void* from, size_t size, void* stream) {
  return guarded([&] { return copy(gpu_device(index), to, from, size, stream); });
}
sf_status sf_gpu_fill(int index, void* to, int byte, size_t size, void* stream) {
  return guarded([&] { return fill(gpu_device(index), to, byte, size, stream); });
}
sf_status sf_gpu_stream_create(int index, void** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("out", out));
    SF_ASSIGN(Stream stream, Stream::create(gpu_device(index)));
    *out = stream.release();
    return {};
  });
}
sf_status sf_gpu_stream_free(int index, void* stream) {
  return guarded([&]() -> Status {
    if (!stream) return {};
    SF_TRY(usable_gpu(gpu_device(index)).status());
    Stream::adopt(gpu_device(index), stream);
    return {};
  });
}
sf_status sf_gpu_synchronize(int index, void* stream) {
  return guarded([&] { return synchronize(gpu_device(index), stream); });
}

sf_status sf_weight_gpu_bytes(const sf_weight* weight, size_t* bytes) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, bytes", weight, bytes));
    *bytes = DeviceWeight::bytes(weight->view());
    return {};
  });
}
sf_status sf_weight_upload(const sf_weight* weight, int index, void* memory, size_t size, void* stream, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("weight, out", weight, out));
    SF_TRY(host_data(*weight));
    SF_ASSIGN(DeviceWeight gpu, memory ? DeviceWeight::upload(weight->value, gpu_device(index), memory, size, stream)
                                       : DeviceWeight::upload(weight->value, gpu_device(index), stream));
    *out = on_gpu(weight->value.name, std::move(gpu));
    return {};
  });
}
sf_status sf_weight_borrow(const sf_weight* like, int index, void* memory, size_t size, sf_weight** out) {
  return guarded([&]() -> Status {
    SF_TRY(not_null("like, out", like, out));
    if (like->described) return invalid_argument("the weight has a shape but no data");
    SF_ASSIGN(DeviceWeight gpu, DeviceWeight::at(like->view(), gpu_device(index), memory, size));
    *out = on_gpu(like->value.name, std::move(gpu));
    return {};
  });
}

}  // extern "C"
