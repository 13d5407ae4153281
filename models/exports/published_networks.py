"""Networks on images as torchvision and timm publish them: how layers are put together beside those written here."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

Library = Literal["torchvision", "timm"]


class Published(NamedTuple):
    """A network that a library makes, and the height and width of its images."""

    library: Library
    name: str
    side: int = 224

    def module(self) -> Any:  # noqa: ANN401 - torch has no types here
        """Return the network with weights of the moment."""
        if self.library == "timm":
            return import_module("timm").create_model(self.name, pretrained=False)
        options: dict[str, object] = {"weights": None}
        if self.name.startswith("deeplab"):
            options["weights_backbone"] = None
        if self.name.startswith("inception"):
            options |= {"aux_logits": False, "init_weights": False}
        return import_module("torchvision").models.get_model(self.name, **options)


PUBLISHED: Final[Mapping[str, Published]] = MappingProxyType(
    {
        "deeplab_v3": Published("torchvision", "deeplabv3_mobilenet_v3_large"),
        "densenet_121": Published("torchvision", "densenet121"),
        "inception_v3": Published("torchvision", "inception_v3", 299),
        "maxvit": Published("torchvision", "maxvit_t"),
        "mobilenet_v3": Published("torchvision", "mobilenet_v3_small"),
        "regnet_y": Published("torchvision", "regnet_y_400mf"),
        "shufflenet_v2": Published("torchvision", "shufflenet_v2_x1_0"),
        "swin_v2": Published("torchvision", "swin_v2_t"),
        "cait": Published("timm", "cait_xxs24_224"),
        "edgenext": Published("timm", "edgenext_small"),
        "eva02": Published("timm", "eva02_tiny_patch14_224"),
        "ghostnet": Published("timm", "ghostnet_100"),
        "gmlp": Published("timm", "gmlp_ti16_224"),
        "levit": Published("timm", "levit_128"),
        "mobilevit": Published("timm", "mobilevit_s", 256),
        "poolformer": Published("timm", "poolformer_s12"),
        "pvt_v2": Published("timm", "pvt_v2_b0"),
        "res2net": Published("timm", "res2net50_14w_8s"),
        "xcit": Published("timm", "xcit_nano_12_p16_224"),
    }
)
"""Name -> network. `eva02` goes through the exporter by torch.export alone."""
