// load(): open, plan, run; through the packed cache when there is one.
#include "swordfish/load.h"

#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/try.h"
#include "load/cache_guard.h"
#include "load/checkpoint_job.h"
#include "load/load_hooks.h"
#include "load/packed_cache.h"
#include "load/packed_job.h"
#include "load/uploader.h"

namespace swordfish {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Status check(const LoadOptions& options) {
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks)
    return invalid_argument("rank {} of {}: expected 0 <= rank < ranks", options.rank, options.ranks);
  if (options.threads < 0 || options.threads > 4096) return invalid_argument("{} threads; expected 0 to 4096", options.threads);
  if (options.depth < 1 || options.depth > 4096)
    return invalid_argument("depth {}; expected 1 to 4096 reads in flight", options.depth);
  if (options.device.kind == Device::Kind::cuda) SF_TRY(usable_gpu(options.device).status());
  if (options.ring_bytes > std::uint64_t{1} << 40) return invalid_argument("a ring of {} bytes", options.ring_bytes);
  return {};
}

void count(LoadedModel& model) {
  LoadReport& report = model.report;
  report.layers = static_cast<std::int64_t>(model.layers.size());
  report.tensors = static_cast<std::int64_t>(model.tensors.size());
  report.packed_bytes = 0;
  for (const LoadedLayer& layer : model.layers) {
    for (const PackedWeight& weight : layer.weights) report.packed_bytes += weight.bytes();
    for (const DeviceWeight& weight : layer.device_weights) report.packed_bytes += DeviceWeight::bytes(weight.view());
    report.packed_bytes += layer.bias.size() * sizeof(float);
  }
  for (const LoadedTensor& tensor : model.tensors) report.packed_bytes += tensor.info.bytes;
}

// The way to a GPU.
struct Upload {
  std::unique_ptr<LoadDevice> gpu;
  std::unique_ptr<Uploader> uploader;  // null: everything stays in host memory
};
Result<Upload> prepare_upload(const LoadOptions& options, std::uint64_t chunk_bytes, std::uint64_t expected,
                              const JobHooks& hooks) {
  Upload upload;
  if (chunk_bytes == 0) return upload;
  const auto workers = static_cast<unsigned>(most_workers(options));
  LoadDevice* device = hooks.device;
  if (device == nullptr) {
    SF_ASSIGN(upload.gpu, make_load_gpu(options.device, 2 * workers));
    device = upload.gpu.get();
  }
  constexpr std::uint64_t kPage = 4096;
  SF_ASSIGN(upload.uploader,
            Uploader::make(*device, workers, std::max(chunk_bytes / (2 * workers) / kPage * kPage, kPage), expected));
  return upload;
}

// What a load needs whatever it reads.
struct Means {
  std::uint64_t chunk_bytes = 0;  // page-locked, for a load to a GPU
  std::shared_ptr<io::StagingMemory> memory;
};

Result<LoadedModel> load_packed_file(const std::string& path, const LoadOptions& options, const Means& means, const JobHooks& hooks,
                                     Clock::time_point start) {
  if (options.ranks > 1) return unsupported("{}: a packed file is loaded whole; ranks are cut from the checkpoint", path);
  if (!options.layers.empty() || options.fuse)
    return unsupported("{}: a packed file is loaded as it is; layers and fuse are of the checkpoint", path);
  LoadedModel model;
  SF_ASSIGN(const auto file, io::File::open(path));
  SF_ASSIGN(const Upload upload, prepare_upload(options, means.chunk_bytes, file->size(), hooks));
  SF_ASSIGN(const auto job, PackedJob::open(path, "", nullptr));
  if (upload.uploader) job->upload_to(*upload.uploader);
  model.report.open_seconds = seconds_since(start);
  SF_TRY(run_job(job->job(), options, means.memory, model.report, hooks));
  if (!options.raw) SF_TRY(job->take(model));
  model.report.from_packed = true;
  return model;
}

Status make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0 || errno == EEXIST) return {};
  return io_error("{}: cannot make the folder: {}", path, errno_text(errno));
}

}  // namespace

Result<LoadedModel> load_hooked(const std::string& path, const LoadOptions& asked, const JobHooks& hooks) {
  LoadOptions options = asked;
  SF_TRY(check(options));
  const Clock::time_point start = Clock::now();
  const CacheGuard guard(path);
  Means means;
  if (!options.raw && (options.device.kind == Device::Kind::cuda || hooks.device != nullptr)) {
    means.chunk_bytes = options.ring_bytes / 4;
    options.ring_bytes -= means.chunk_bytes;
  }
  means.memory =
      std::make_shared<io::StagingMemory>(static_cast<std::size_t>(std::min(options.ring_bytes, guard.file_bytes())), true);
  if (PackedFile::is_packed(path)) {
    SF_ASSIGN(LoadedModel model, load_packed_file(path, options, means, hooks, start));
    count(model);
    model.report.seconds = seconds_since(start);
    return model;
  }
  SF_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path, options.open));
  SF_ASSIGN(const auto job, CheckpointJob::open(checkpoint, options));
  SF_ASSIGN(const Upload upload, prepare_upload(options, means.chunk_bytes, job->plan().bytes - job->plan().strided_bytes, hooks));
  if (upload.uploader) SF_TRY(job->upload_to(*upload.uploader));
  LoadedModel model;
  std::optional<PackedCache> cache;
  if (!options.cache.empty() && !options.raw) {
    SF_TRY(make_folder(options.cache));
    SF_ASSIGN(cache, PackedCache::find(path, job->files(), options));
    if (cache->exists()) {
      model.report.open_seconds = seconds_since(start);
      Status status = cache->load(options, means.memory, upload.uploader.get(), model);
      if (status.ok()) {
        count(model);
        model.report.seconds = seconds_since(start);
        return model;
      }
      if (status.code() != Code::malformed && status.code() != Code::io) return status;
      model = {};
      if (upload.uploader) SF_TRY(upload.uploader->forget());
      model.report.notes.push_back(fmt::format("the packed cache is made anew: {}", status.message()));
    }
  }
  model.report.open_seconds = seconds_since(start);
  SF_TRY(run_job(job->job(), options, means.memory, model.report, hooks));
  model.report.strided_bytes = job->plan().strided_bytes;
  model.report.pack_seconds = job->pack_seconds();
  if (job->plan().strided_tensors > 0) {
    model.report.notes.push_back(fmt::format(
        "{} tensors have runs shorter than {} KiB for this rank and are read from their first run to their last: {} bytes more",
        job->plan().strided_tensors, kShortestRun >> 10, job->plan().strided_bytes));
  }
  if (options.raw) {
    model.report.seconds = seconds_since(start);
    return model;
  }
  SF_TRY(job->take(model));
  const std::vector<Warning>& warnings = checkpoint.warnings();
  model.report.notes.insert(model.report.notes.begin(), warnings.begin(), warnings.end());
  count(model);
  model.report.seconds = seconds_since(start);
  if (cache) {
    const Clock::time_point writing = Clock::now();
    SF_TRY(cache->store(model, options));
    model.report.cache_seconds = seconds_since(writing);
    model.report.cache_written = true;
  }
  return model;
}

Result<LoadedModel> load(const std::string& path, const LoadOptions& options) { return load_hooked(path, options, {}); }

}  // namespace swordfish
