// RUN: xdsl-opt %s -p 'pebble-schedule-images{l1_bytes=512 l2_bytes=1024}' --split-input-file | filecheck %s

// Of an image of one row there are no bands.
// CHECK-NOT: depth_first
func.func @main(%x: tensor<?x4x1x640xf32>) -> tensor<?x4x1x640xf32> {
  %y = pebble.image_network %x threads 1 predicted_us 10.0 : (tensor<?x4x1x640xf32>) -> tensor<?x4x1x640xf32> {
  ^bb0(%a : tensor<?x4x1x640xf32>):
    %h = pebble.activate <relu> %a : (tensor<?x4x1x640xf32>) -> tensor<?x4x1x640xf32>
    %g = pebble.activate <gelu> %h : (tensor<?x4x1x640xf32>) -> tensor<?x4x1x640xf32>
    pebble.yield %g : tensor<?x4x1x640xf32>
  }
  func.return %y : tensor<?x4x1x640xf32>
}

// -----

// The mean of all pixels needs the last one before it is known.
func.func @main(%x: tensor<?x4x64x64xf32>) -> tensor<?x4x1x1xf32> {
  %y = pebble.image_network %x threads 1 predicted_us 10.0 : (tensor<?x4x64x64xf32>) -> tensor<?x4x1x1xf32> {
  ^bb0(%a : tensor<?x4x64x64xf32>):
    %h = pebble.activate <relu> %a : (tensor<?x4x64x64xf32>) -> tensor<?x4x64x64xf32>
    %g = pebble.pool2d "average" %h window <[64, 64] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x64x64xf32>) -> tensor<?x4x1x1xf32>
    pebble.yield %g : tensor<?x4x1x1xf32>
  }
  func.return %y : tensor<?x4x1x1xf32>
}
