#!/usr/bin/env python3
"""Prints the largest values of an ONNX model's tensors, for Sources/Inference/EightBit/Calibrations.swift.

Usage: calibrate.py MODEL.onnx PHOTO...    (needs nncf, onnx, openvino, numpy and Pillow)

The places and the ranges are those of NNCF's post-training quantisation with its mixed preset: behind every activation,
resize and sum, with one range for what is joined. Inputs are prepared as for u2netp.
"""
import sys

import nncf
import numpy as np
import onnx
import openvino as ov
from PIL import Image


def prepared(path):
    rgb = np.asarray(Image.open(path).convert("RGB").resize((320, 320), Image.LANCZOS), np.float32)
    rgb = rgb / max(rgb.max(), 1e-6)
    rgb = (rgb - np.float32([0.485, 0.456, 0.406])) / np.float32([0.229, 0.224, 0.225])
    return rgb.transpose(2, 0, 1)[None].astype(np.float32)


def main(model, photos):
    network = ov.Core().read_model(model)
    network.reshape([1, 3, 320, 320])
    quantised = nncf.quantize(network, nncf.Dataset(photos, prepared), subset_size=len(photos),
                              preset=nncf.QuantizationPreset.MIXED)
    tensors = {node.name: node.output[0] for node in onnx.load(model).graph.node}
    for operation in quantised.get_ordered_ops():
        if operation.get_type_name() != "FakeQuantize":
            continue
        name = operation.input_value(0).get_node().get_friendly_name()
        low, high = (float(operation.input_value(i).get_node().data.ravel()[0]) for i in (1, 2))
        # What goes below 0, the input and the maps before the last sigmoid, is left in 32 bits.
        if low == 0 and name in tensors:
            print(f"{tensors[name]} {high:.6g}")


main(sys.argv[1], sys.argv[2:])
