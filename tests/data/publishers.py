"""Writes data in the formats of their publishers, byte for byte where it matters, so that the real readers run."""

import bz2
import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image


def libsvm_text(rows, labels):
    """LIBSVM's lines: a label, the non-zero features counted from 1, and a space before the end."""
    lines = []
    for row, label in zip(rows, labels, strict=True):
        entries = "".join(f"{i + 1}:{row[i]:.9g} " for i in np.flatnonzero(row))
        lines.append(f"{label} {entries}\n")
    return "".join(lines).encode()


def write_libsvm(path, rows, labels):
    text = libsvm_text(rows, labels)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bz2.compress(text) if path.suffix == ".bz2" else text)
    return path


def rows_like_aloi():
    """108,000 rows of 1,000 classes, as sparse and as small as ALOI's."""
    rng = np.random.default_rng(0)
    rows = rng.integers(1, 10, (108_000, 128), dtype=np.uint8) * (rng.random((108_000, 128)) < 0.24)
    return rows, np.repeat(np.arange(1000), 108)


def write_npz(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, array)
    return path


def python_2_pickle(value):
    """Protocol 2 as Python 2 wrote it, with its byte strings, which today's Python can read but not write."""
    out = bytearray(b"\x80\x02")
    memo = 0

    def put():
        nonlocal memo
        out.extend(b"q" + bytes([memo]) if memo < 256 else b"r" + struct.pack("<I", memo))
        memo += 1

    def save(item):
        if isinstance(item, dict):
            out.extend(b"}")
            put()
            out.extend(b"(")
            for key, content in item.items():
                save(key)
                save(content)
            out.extend(b"u")
        elif isinstance(item, list):
            out.extend(b"]")
            put()
            for start in range(0, len(item), 1000):
                out.extend(b"(")
                for content in item[start : start + 1000]:
                    save(content)
                out.extend(b"e")
        elif isinstance(item, int):
            out.extend(b"K" + bytes([item]) if item < 256 else b"M" + struct.pack("<H", item))
        elif isinstance(item, bytes):
            out.extend(b"U" + bytes([len(item)]) if len(item) < 256 else b"T" + struct.pack("<i", len(item)))
            out.extend(item)
            put()
        else:
            out.extend(b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01")
            for length in item.shape:
                out.extend(b"J" + struct.pack("<i", length))
            out.extend(
                b"\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
            )
            save(item.tobytes())
            out.extend(b"tb")

    save(value)
    return bytes(out) + b"."


def write_tar_gz(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wb", compresslevel=1) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def cifar_batch(images, labels, label_key, extra):
    pixels = np.asarray(images).transpose(0, 3, 1, 2).reshape(len(images), -1)
    names = [b"picture_s_%06d.png" % i for i in range(len(images))]
    return python_2_pickle(
        {b"batch_label": b"batch", label_key: [int(y) for y in labels], **extra, b"data": pixels, b"filenames": names}
    )


def cifar_10_members(images, labels, test_images, test_labels, names):
    folder, size = "cifar-10-batches-py", len(images) // 5
    parts = {f"data_batch_{i + 1}": slice(i * size, (i + 1) * size) for i in range(5)}
    return {
        f"{folder}/batches.meta": python_2_pickle(
            {b"num_cases_per_batch": size, b"label_names": [name.encode() for name in names], b"num_vis": 3072}
        ),
        **{f"{folder}/{name}": cifar_batch(images[part], labels[part], b"labels", {}) for name, part in parts.items()},
        f"{folder}/readme.html": b"<meta>",
        f"{folder}/test_batch": cifar_batch(test_images, test_labels, b"labels", {}),
    }


def cifar_100_members(images, labels, test_images, test_labels, names):
    def part(images, labels):
        return cifar_batch(images, labels, b"fine_labels", {b"coarse_labels": [0] * len(labels)})

    return {
        "cifar-100-python/file.txt~": b"",
        "cifar-100-python/train": part(images, labels),
        "cifar-100-python/test": part(test_images, test_labels),
        "cifar-100-python/meta": python_2_pickle(
            {b"fine_label_names": [name.encode() for name in names], b"coarse_label_names": [b"fish"]}
        ),
    }


def write_human_labels(path, vectors):
    """What torch.save made of NumPy 1's arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = pickle.dumps({name: np.asarray(vector, np.int64) for name, vector in vectors.items()}, protocol=2)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("CIFAR-10_human/data.pkl", content.replace(b"numpy._core.", b"numpy.core."))
        archive.writestr("CIFAR-10_human/version", b"3\n")
    return path


def jpeg(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


def labelled_jpegs(arrays):
    """(JPEG, label) from arrays that have all files end to end, their lengths and the labels."""
    contents = np.split(arrays["jpeg"], np.cumsum(arrays["length"])[:-1])
    return [(content.tobytes(), int(label)) for content, label in zip(contents, arrays["y"], strict=True)]


def tiny_imagenet_files(wnids, train, val):
    """The files of the unpacked zip; ``train`` and ``val`` are (JPEG, label) in the order of the data set."""
    files = {
        "wnids.txt": "".join(f"{wnid}\n" for wnid in wnids).encode(),
        "words.txt": "".join(f"{wnid}\tthing {i}, object\n" for i, wnid in enumerate(sorted(wnids))).encode(),
    }
    seen = dict.fromkeys(wnids, 0)
    for content, label in train:
        wnid = wnids[label]
        files[f"train/{wnid}/images/{wnid}_{seen[wnid]}.JPEG"] = content
        seen[wnid] += 1
    rows = []
    for i, (content, label) in enumerate(val):
        files[f"val/images/val_{i}.JPEG"] = content
        rows.append(f"val_{i}.JPEG\t{wnids[label]}\t0\t0\t62\t62\n")
    files["val/val_annotations.txt"] = "".join(rows).encode()
    return files


def write_zip(path, files, folder):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{folder}/{name}", content)
    return path


def write_folder(path: Path, files):
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def write_kuzushiji_49(root, images, labels, test_images, test_labels):
    """The four files; images are ``(N, 28, 28)``."""
    for part, pixels, classes in (("train", images, labels), ("test", test_images, test_labels)):
        write_npz(root / "kuzushiji-49" / f"k49-{part}-imgs.npz", np.asarray(pixels, np.uint8))
        write_npz(root / "kuzushiji-49" / f"k49-{part}-labels.npz", np.asarray(classes, np.uint8))


def write_mini_webvision(root, wnids, train, val):
    """WebVision's Google images and ILSVRC12's validation images by class, unpacked; both (JPEG, label)."""
    folder = root / "mini-webvision"
    lines = [f"google/q{label + 1:04}/picture {i}.jpg {label}" for i, (_, label) in enumerate(train)]
    pictures = {line.rpartition(" ")[0]: content for line, (content, _) in zip(lines, train, strict=True)}
    lists = {
        "info/train_filelist_google.txt": "".join(f"{line}\n" for line in lines).encode(),
        "info/synsets.txt": "".join(f"{wnid} thing {i}, object\n" for i, wnid in enumerate(wnids)).encode(),
    }
    write_folder(folder / "webvision", pictures | lists)
    tested = {f"{wnids[label]}/ILSVRC2012_val_{i:08}.JPEG": content for i, (content, label) in enumerate(val, 1)}
    write_folder(folder / "ILSVRC2012_img_val", tested)
