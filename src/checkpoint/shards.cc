// Which safetensors files of a folder make up the checkpoint, and the index of a sharded one (formats.md 1.5).
//
//   model.safetensors.index.json: {"metadata": {...}, "weight_map": {<tensor>: <shard file name>, ...}}
//
// "metadata" is not read: its total_size is often wrong. A shard name is checked as a string, so that it cannot lead out of the
// folder; symbolic links that are in the folder are followed, since download caches are made of them.
#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/try.h"
#include "checkpoint/container.h"

namespace swordfish {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::uint64_t kIndexLimit = 100'000'000;  // bytes; an index of 120,000 tensors has 15 MB

// One plain component: it names something in the folder itself, on any system.
bool is_plain_name(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  if (name.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos) return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !(name.size() >= 2 && name[1] == ':' && letter(name[0]));
}

struct Mapping {
  std::string_view tensor;
  std::size_t shard = 0;  // number
};
struct WeightMap {
  std::vector<std::string_view> shards;  // sorted
  std::vector<Mapping> mappings;         // as the file has them; a key may appear twice
};

Result<WeightMap> read_weight_map(const Json& json) {
  const std::string& path = json.what();
  if (!json.root().is_object())
    return malformed("{}: expected object with key 'weight_map', found {}", path, json_kind(json.root()));
  SF_ASSIGN(const std::optional<simdjson::dom::element> map, get_object(json.root(), "weight_map", path));
  if (!map) return malformed("{}: key 'weight_map' is missing", path);
  simdjson::dom::object members;
  if (map->get(members) != simdjson::SUCCESS) return malformed("{}: key 'weight_map': expected object", path);
  WeightMap out;
  std::unordered_map<std::string_view, std::size_t> numbers;  // of the shards as they come
  for (const simdjson::dom::key_value_pair field : members) {
    std::string_view shard;
    if (field.value.get(shard) != simdjson::SUCCESS)
      return malformed("{}: weight_map, tensor '{}': expected string (a shard file name), found {}", path, printable(field.key),
                       json_kind(field.value));
    const auto [known, is_new] = numbers.emplace(shard, out.shards.size());
    if (is_new) {
      if (!is_plain_name(shard) || !shard.ends_with(kSuffix))
        return malformed("{}: weight_map, tensor '{}': illegal shard file name '{}': expected a plain name that ends in {}", path,
                         printable(field.key), printable(shard), kSuffix);
      out.shards.push_back(shard);
    }
    out.mappings.push_back({field.key, known->second});
  }
  if (out.mappings.empty()) return malformed("{}: key 'weight_map' is empty", path);
  std::sort(out.shards.begin(), out.shards.end());
  std::vector<std::size_t> sorted(out.shards.size());  // by the first numbers
  for (std::size_t i = 0; i < out.shards.size(); ++i) sorted[numbers.at(out.shards[i])] = i;
  for (Mapping& mapping : out.mappings) mapping.shard = sorted[mapping.shard];
  return out;
}

// Keeps the tensors that the index names, and warns once a file about the others.
void drop_unlisted(const std::vector<bool>& listed, Container& container) {
  std::vector<Tensor> kept;
  std::vector<std::size_t> dropped(container.files.size());
  std::vector<std::string> example(container.files.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    Tensor& t = container.tensors[i];
    if (listed[i]) {
      container.index[t.name] = kept.size();
      kept.push_back(std::move(t));
    } else {
      container.index.erase(t.name);
      if (dropped[t.file]++ == 0) example[t.file] = t.name;
    }
  }
  container.tensors = std::move(kept);
  for (std::size_t file = 0; file < dropped.size(); ++file)
    if (dropped[file] != 0)
      container.warnings.push_back(
          fmt::format("{}, {}: {} not in the index and ignored", container.files[file]->path(), printable(example[file]),
                      dropped[file] == 1 ? "the tensor is" : fmt::format("it and {} more tensors are", dropped[file] - 1)));
}

Result<Container> open_index(const std::string& folder, const std::string& index_path) {
  SF_ASSIGN(const std::string text, io::read_text(index_path, kIndexLimit));
  SF_ASSIGN(const Json json, Json::parse(text, index_path));
  SF_ASSIGN(const WeightMap map, read_weight_map(json));

  Container container;
  std::vector<std::shared_ptr<const io::File>> files;
  for (std::size_t shard = 0; shard < map.shards.size(); ++shard) {
    const std::string path = fmt::format("{}/{}", folder, map.shards[shard]);
    if (!io::exists(path)) {
      const auto user = std::find_if(map.mappings.begin(), map.mappings.end(), [&](const Mapping& m) { return m.shard == shard; });
      return malformed("{}: shard '{}' is missing (not found in the folder); tensor '{}' needs it", index_path,
                       printable(map.shards[shard]), printable(user->tensor));
    }
    SF_ASSIGN(std::shared_ptr<const io::File> file, io::File::open(path));
    files.push_back(std::move(file));
  }
  SF_TRY(read_safetensors_headers(std::move(files), container));

  std::vector<bool> listed(container.tensors.size());
  Status misplaced;
  for (const Mapping& mapping : map.mappings) {
    const auto found = container.index.find(mapping.tensor);
    if (found != container.index.end() && listed[found->second])
      return malformed("{}: weight_map: duplicate key '{}': it appears twice", index_path, printable(mapping.tensor));
    if (found != container.index.end()) listed[found->second] = true;
    if (!misplaced.ok() || (found != container.index.end() && container.tensors[found->second].file == mapping.shard)) continue;
    misplaced =
        malformed("{}: tensor '{}' is not in shard '{}', where the index places it{}", index_path, printable(mapping.tensor),
                  printable(map.shards[mapping.shard]),
                  found == container.index.end() ? std::string()
                                                 : fmt::format(", but in {}", container.path_of(container.tensors[found->second])));
  }
  SF_TRY(misplaced);
  if (map.mappings.size() < container.tensors.size()) drop_unlisted(listed, container);
  return container;
}

}  // namespace

Result<Container> open_safetensors_file(const std::string& path) {
  SF_ASSIGN(std::shared_ptr<const io::File> file, io::File::open(path));
  Container container;
  SF_TRY(read_safetensors_headers({std::move(file)}, container));
  return container;
}

Result<Container> open_safetensors_folder(const std::string& folder, const std::string& base_name,
                                          const std::string& gptq_default) {
  if (const std::string index = fmt::format("{}/{}", folder, kIndexName); io::exists(index)) return open_index(folder, index);
  if (const std::string model = folder + "/model.safetensors"; io::exists(model)) return open_safetensors_file(model);
  if (!base_name.empty() && !is_plain_name(base_name))
    return malformed("{}: key 'model_file_base_name': illegal file name '{}': expected a plain name", folder, printable(base_name));
  const std::string& old_name = base_name.empty() ? gptq_default : base_name;
  if (const std::string old = fmt::format("{}/{}{}", folder, old_name, kSuffix); !old_name.empty() && io::exists(old))
    return open_safetensors_file(old);

  SF_ASSIGN(std::vector<std::string> names, io::list_directory(folder));
  std::erase_if(names, [](const std::string& entry) { return !entry.ends_with(kSuffix); });
  if (names.empty()) return malformed("{}: no safetensors file found (expected {} or model.safetensors)", folder, kIndexName);
  if (names.size() > 1) {
    for (std::string& entry : names) entry = printable(entry);
    return malformed("{}: several safetensors files without an index ({}): {}", folder, kIndexName, fmt::join(names, ", "));
  }
  return open_safetensors_file(folder + "/" + names.front());
}

}  // namespace swordfish
