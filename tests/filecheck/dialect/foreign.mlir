// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// An effect is possible, so nothing is dropped:
// RUN: xdsl-opt %s -p canonicalize,dce | filecheck %s

// CHECK: func.func @main(%x: tensor<?x4xf32> {pebble.name = "x", pebble.dims = ["batch", "4"]}, %ids: !pebble.value<"tensor(int64)">)
func.func @main(%x: tensor<?x4xf32> {pebble.name = "x", pebble.dims = ["batch", "4"]}, %ids: !pebble.value<"tensor(int64)">) {
  // CHECK-NEXT: %scaled = pebble.foreign "ai.onnx.ml::Scaler" at 3 reads %x as ["x"] {pebble.node = "scale"} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %scaled = pebble.foreign "ai.onnx.ml::Scaler" at 3 reads %x as ["x"] {pebble.node = "scale"} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  // CHECK-NEXT: %picked, %more = pebble.foreign "TopK" at 4 reads %scaled, %ids as ["h", "ids"] : (tensor<?x4xf32>, !pebble.value<"tensor(int64)">) -> (tensor<?x4xf32>, !pebble.value<"tensor(int64)">)
  %picked, %more = pebble.foreign "TopK" at 4 reads %scaled, %ids as ["h", "ids"] : (tensor<?x4xf32>, !pebble.value<"tensor(int64)">) -> (tensor<?x4xf32>, !pebble.value<"tensor(int64)">)
  // CHECK-NEXT: %noise = pebble.foreign "RandomNormal" at 5 as [] : () -> tensor<2xf32>
  %noise = pebble.foreign "RandomNormal" at 5 as [] : () -> tensor<2xf32>
  func.return
}
