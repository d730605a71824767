import io
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labelhedge.data import DataError
from labelhedge.data.formats.human_labels import read_human_labels
from labelhedge.data.formats.pickles import load_pickle
from tests.data.publishers import python_2_pickle, write_human_labels


def test_what_python_2_wrote():
    value = {b"labels": [1, 2, 300], b"data": np.arange(300, dtype=np.uint8).reshape(2, 150), b"long": b"x" * 300}
    found = load_pickle(python_2_pickle(value))
    assert found.pop(b"data").tolist() == value.pop(b"data").tolist()
    assert found == value


def test_the_file_that_python_2_writes_is_the_one_that_pickle_reads():
    value = {b"labels": list(range(256)) * 5, b"data": np.arange(6, dtype=np.uint8).reshape(2, 3)}
    found = pickle.loads(python_2_pickle(value), encoding="bytes")
    assert found[b"labels"] == value[b"labels"]
    assert np.array_equal(found[b"data"], value[b"data"])


@pytest.mark.parametrize("dtype", ["u1", "<i8", "<i4"])
def test_arrays_of_each_type(dtype):
    array = np.arange(200).astype(dtype)
    assert np.array_equal(load_pickle(pickle.dumps({"a": array}, protocol=2))["a"], array)


class Runs:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def calls(module, name, argument=b"U\x01x"):
    return b"\x80\x02c" + f"{module}\n{name}\n".encode() + argument + b"\x85R."


HOSTILE = {
    "system": pickle.dumps(Runs(__import__("os").system, "touch pwned")),
    "eval": pickle.dumps(Runs(eval, "1 + 1"), protocol=2),
    "subprocess": pickle.dumps(Runs(subprocess.call, ["touch", "pwned"])),
    "getattr": calls("builtins", "getattr"),
    "numpy.load": calls("numpy", "load"),
    "numpy scalar": pickle.dumps({"a": np.float64(1)}, protocol=2),
    "torch": pickle.dumps(torch.device("cpu")),
    "nested name": b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.__init__\x93.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"\x80\x02Pabc\n.",
    "persistent 2": b"\x80\x02K\x01Q.",
    "object array": pickle.dumps({"a": np.array([None], object)}, protocol=2),
    "floats": pickle.dumps({"a": np.zeros(3)}, protocol=2),
    "big-endian": pickle.dumps({"a": np.zeros(3, ">i8")}, protocol=2),
    "records": pickle.dumps({"a": np.zeros(3, [("x", "u1")])}, protocol=2),
    "codec": calls("_codecs", "encode", b"X\x01\x00\x00\x00x\x8c\x04zlib").replace(b"\x85R", b"\x86R"),
    "changes a name": b"\x80\x02c_codecs\nencode\n}U\x05_callK\x01sb.",
    "changes a name's slots": b"\x80\x02cnumpy\ndtype\nN}X\x05\x00\x00\x00_callK\x01s\x86b.",
    "makes an instance": b"\x80\x02cnumpy\ndtype\n)\x81.",
    "makes an old instance": b"(cnumpy\ndtype\no.",
    "huge memo": b"\x80\x02K\x01r\xff\xff\xff\x7f.",
    "huge string": b"\x80\x02T\xff\xff\xff\x7fabc.",
    "huge frame": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "huge byte array": b"\x80\x05\x96\xff\xff\xff\xff\x03\x00\x00\x00.",
    "newer protocol": pickle.dumps({"a": np.zeros(3, np.uint8)}, protocol=4),
    "huge number": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "shape": python_2_pickle({b"a": np.zeros((2, 3), np.uint8)}).replace(b"J\x03\x00\x00\x00", b"J\xff\xff\xff\x7f"),
    "nothing": b"",
    "no end": b"\x80\x02K\x01",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_pickles(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    if content == HOSTILE["huge memo"]:
        assert load_pickle(content) == 1  # harmless here: the memo is a dictionary
        return
    with pytest.raises(Exception, match=r".*") as caught:
        load_pickle(content)
    assert not isinstance(caught.value, MemoryError | RecursionError)
    assert not list(tmp_path.iterdir())


def test_a_pickle_that_tries_to_change_the_reader_changes_nothing():
    for name in ("changes a name", "changes a name's slots"):
        with pytest.raises(Exception, match=r"__dict__|changes what is not its own"):
            load_pickle(HOSTILE[name])
    test_what_python_2_wrote()


@given(data=st.data())
@settings(max_examples=500, deadline=None)
def test_a_damaged_pickle_only_ever_raises(data):
    content = bytearray(python_2_pickle({b"labels": [1, 2], b"data": np.zeros((2, 3), np.uint8)}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    raised = None
    try:
        load_pickle(bytes(content))
    except Exception as error:  # whatever it is, the readers turn it into a DataError
        raised = error
    assert not isinstance(raised, MemoryError)


def test_the_reader_opens_no_file_and_imports_nothing():
    code = (
        "import sys; from labelhedge.data.formats.pickles import load_pickle\n"
        "seen = []; sys.addaudithook(lambda name, args: seen.append(name))\n"
        "import tests.data.test_pickles as t\n"
        "seen.clear()\n"
        "for content in t.HOSTILE.values():\n"
        "    try: load_pickle(content)\n"
        "    except Exception: pass\n"
        "names = {name for name in seen if name in ('import', 'open', 'exec', 'os.system', 'subprocess.Popen')}\n"
        "assert not names, names"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_human_labels_that_torch_saves_today(tmp_path):
    labels = np.arange(50) % 10
    torch.save({"worse_label": labels}, tmp_path / "today.pt", pickle_protocol=2)
    write_human_labels(tmp_path / "then.pt", {"worse_label": labels})
    for name in ("today.pt", "then.pt"):
        found = read_human_labels(tmp_path / name, count=50, num_classes=10)
        assert np.array_equal(found["worse_label"], labels)


@pytest.mark.parametrize(
    "vectors",
    [{"worse_label": np.arange(49) % 10}, {"worse_label": np.arange(50)}, {"worse_label": np.arange(50) - 1}],
)
def test_human_labels_that_cannot_be(tmp_path, vectors):
    path = write_human_labels(tmp_path / "h.pt", vectors)
    with pytest.raises(DataError, match="worse_label does not hold 50 labels from 0 to 9"):
        read_human_labels(path, count=50, num_classes=10)


def test_human_labels_in_tensors_are_refused(tmp_path):
    out = io.BytesIO()
    torch.save({"worse_label": torch.zeros(50, dtype=torch.long)}, out)
    (tmp_path / "h.pt").write_bytes(out.getvalue())
    with pytest.raises(DataError, match=r"asks for torch\._utils\._rebuild_tensor_v2|persistent"):
        read_human_labels(tmp_path / "h.pt", count=50, num_classes=10)
