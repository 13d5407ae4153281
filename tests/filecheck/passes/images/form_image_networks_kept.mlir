// RUN: xdsl-opt %s -p pebble-form-image-networks --split-input-file | filecheck %s

// No layer of images: rows of the last axis run in tiles.
// CHECK-LABEL: @elementwise
func.func @elementwise(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  // CHECK-NEXT: pebble.activate
  %y = pebble.activate <relu> %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// A sum that broadcasts stays outside.
// CHECK-LABEL: @broadcast
func.func @broadcast(%x: tensor<?x2x4x4xf32>, %b: tensor<2x1x1xf32>) -> tensor<?x2x2x2xf32> {
  // CHECK-NEXT: pebble.add
  %a = pebble.add %x, %b : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  // CHECK-NEXT: pebble.image_network
  %y = pebble.pool2d "max" %a window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>) -> tensor<?x2x2x2xf32>
  func.return %y : tensor<?x2x2x2xf32>
}
