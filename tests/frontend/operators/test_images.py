import numpy as np
import pytest

from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import assert_agrees, imported, model, normal

IMAGE = "(float[n,2,8,8] x) => (float[n,c,h,w] y)"


@pytest.mark.parametrize(
    ("node", "refusal"),
    [
        ("ConvTranspose<output_shape=[20,3]>(x, w)", "expected a result of 1 to "),
        ("Conv(x, large)", "expected an image with a result, got one smaller than the window"),
        (
            "Conv<pads=[32,32,32,32]>(x, larger)",
            "expected a window of 4096 taps or fewer, 512 in one row or column, of the whole image, or one that cuts",
        ),
        ('Resize<mode="quintic">(x, , scales)', "expected mode=nearest, linear or cubic, got quintic"),
        ("InstanceNormalization(x, three, three)", "expected a constant [2] as input 1, got another value"),
        ("Resize<antialias=1>(x, , scales)", "expected antialias=0, got 1"),
        ("Resize(x, , channels)", "expected other sizes of the pixels alone, got [2, 8, 8] to [4, 8, 8]"),
        ('Pad<mode="reflect">(x, wide)', "expected pads that mode=reflect fills from 8 pixels, got 9 and 0"),
        ("Pad(x, deep)", "expected pads of pixels alone, got [0, 1, 0, 0, 0, 0, 0, 0]"),
        (
            "AveragePool<kernel_shape=[3,3],strides=[2,2],ceil_mode=1,count_include_pad=1>(x)",
            "expected ceil_mode=0 or count_include_pad=0, got both 1 and a window that is cut off",
        ),
        ("Conv<pads=[1048576,0,0,1048576]>(x, w)", "expected an image of up to 67108864 pixels, got 1048584 x 1048584"),
        (
            "MaxPool<kernel_shape=[50000,50000],pads=[0,0,49999,49999]>(x)",
            "expected an image of up to 67108864 pixels, got ",
        ),
        ("MaxPool<kernel_shape=[4000,4000],pads=[0,0,3999,3999]>(x)", "expected a window of 128 taps or fewer, "),
        ("Resize(x, , , vast)", "expected a result of 1 to 1048576 pixels along an axis, got [4194304, 8]"),
        ("Resize(x, , scattered)", "expected factors above 0 and below 1048576"),
        ("Pad(x, vast_pads)", "expected a result of 1 to 1048576 pixels along an axis"),
    ],
)
def test_what_is_not_covered_on_images_is_named(node: str, refusal: str) -> None:
    weights = {
        "w": normal(2, 2, 3, 3),
        "large": normal(2, 2, 12, 12),
        "larger": normal(2, 2, 65, 65),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "channels": np.array([1, 2, 1, 1], np.float32),
        "scattered": np.array([1, 1, np.inf, 2], np.float32),
        "vast": np.array([1, 2, 1 << 22, 8]),
        "vast_pads": np.array([0, 0, 0, 0, 0, 0, 1 << 40, 0]),
        "three": normal(3),
        "wide": np.array([0, 0, 9, 0, 0, 0, 0, 0], np.int64),
        "deep": np.array([0, 1, 0, 0, 0, 0, 0, 0], np.int64),
    }
    with pytest.raises(UnsupportedModelError) as error:
        import_model(model(IMAGE, f"y = {node}", opset=19, weights=weights), foreign="refuse")
    assert refusal in str(error.value)


def test_pads_and_sizes_become_places_of_pixels() -> None:
    weights = {"pads": np.array([0, 0, 0, 1, 0, 0, 0, 2], np.int64), "factors": np.array([1, 1, 0.5, 1], np.float32)}
    nodes = (
        'h = Pad(x, pads) y = Resize<coordinate_transformation_mode="asymmetric", nearest_mode="floor">(h, , factors)'
    )
    text = str(imported(model(IMAGE, nodes, opset=19, weights=weights)))
    assert "rows <[0, 1, 2, 3, 4, 5, 6, 7]> columns <[-1, 0, 1, 2, 3, 4, 5, 6, 7, -1, -1]>" in text
    assert "rows <[0, 2, 4, 6]> columns <[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]>" in text


def test_sizes_of_another_image_are_known_behind_the_batch() -> None:
    weights = {
        "w": np.ones((2, 2, 3, 3), np.float32),
        "zero": np.array([0]),
        "two": np.array([2]),
        "four": np.array([4]),
    }
    nodes = """h = Conv(x, w) s = Shape(h) images = Slice(s, zero, two) t = Shape(x) pixels = Slice(t, two, four)
        sizes = Concat<axis=0>(images, pixels) y = Resize<mode="nearest">(h, , , sizes)"""
    text = str(imported(model(IMAGE, nodes, opset=19, weights=weights)))
    assert "-> tensor<?x2x8x8xf32>" in text
    assert "pebble.resample2d" in text


def test_taps_that_read_pads_alone_are_left_out() -> None:
    weights = {"w": np.ones((2, 4, 3, 3), np.float32)}
    node = "y = Conv<dilations=[24, 11], pads=[24, 11, 24, 11]>(x, w)"
    text = str(imported(model("(float[n,4,9,12] x) => (float[n,c,h,w] y)", node, opset=19, weights=weights)))
    assert "window <[1, 3] strides [1, 1] dilations [24, 11] pads [0, 11, 0, 11]>" in text


def test_groups_that_would_become_a_vast_matrix_are_refused() -> None:
    image, channels = "(float[n,65536,2,2] x) => (float[n,c,h,w] y)", 1 << 16
    text, weights = f"y = Conv<group={channels // 2}>(x, w)", {"w": np.ones((channels, 2, 1, 1), np.float32)}
    with pytest.raises(UnsupportedModelError, match=r"expected at most .* bytes as a matrix, got "):
        import_model(model(image, text, weights=weights), foreign="refuse")


@pytest.mark.parametrize(
    ("signature", "kernel"),
    [
        ("(float[n,2,24,36] x) => (float[n,c,h,w] y)", (12, 12)),
        ("(float[n,3,10,26] x) => (float[n,c,h,w] y)", (10, 13)),
        ("(float[n,2,390] x) => (float[n,c,w] y)", (130,)),
    ],
)
def test_large_windows_that_share_no_pixel_are_a_layer_of_patches(signature: str, kernel: tuple[int, ...]) -> None:
    channels = int(signature.split(",")[1])
    weights = {"w": normal(5, channels, *kernel), "b": normal(5)}
    proto = model(signature, f"y = Conv<strides={list(kernel)}>(x, w, b)", weights=weights)
    assert_agrees(proto)
    assert "pebble.linear" in str(imported(proto))


def test_large_windows_that_are_depthwise_and_share_pixels_are_refused() -> None:
    text = "y = Conv<strides=[12,11],group=2>(x, w)"
    proto = model("(float[n,2,24,36] x) => (float[n,c,h,w] y)", text, weights={"w": normal(2, 1, 12, 12)})
    with pytest.raises(UnsupportedModelError, match=r"expected a window of 128 taps or fewer, .* got 144 taps"):
        import_model(proto, foreign="refuse")
