// RUN: xdsl-opt %s --verify-diagnostics --split-input-file | filecheck %s

// CHECK: expected 2 bands or more, got 1
"test.op"() {bands = #pebble.band_group<ops 0 to 1, bands 1, "">} : () -> ()

// -----

// CHECK: expected 2 ops or more, got 3 to 3
"test.op"() {bands = #pebble.band_group<ops 3 to 3, bands 2, "">} : () -> ()

// -----

// CHECK: expected groups of ops that follow each other
"test.op"() {bands = #pebble.bands<[<ops 0 to 2, bands 2, "">, <ops 2 to 3, bands 2, "">]>} : () -> ()

// -----

// CHECK: expected groups of 2 ops, got ops 1 to 2
func.func @main(%x: tensor<?x4x8x8xf32>) -> tensor<?x4x1x1xf32> {
  %y = pebble.image_network %x threads 1 predicted_us 1.0 depth_first <[<ops 1 to 2, bands 2, "">]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x1x1xf32> {
  ^bb0(%a : tensor<?x4x8x8xf32>):
    %b = pebble.activate <relu> %a : (tensor<?x4x8x8xf32>) -> tensor<?x4x8x8xf32>
    %c = pebble.pool2d "average" %b window <[8, 8] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x1x1xf32>
    pebble.yield %c : tensor<?x4x1x1xf32>
  }
  func.return %y : tensor<?x4x1x1xf32>
}

// -----

// CHECK: expected ops that run in bands, got op 1, pebble.pool2d
func.func @main(%x: tensor<?x4x8x8xf32>) -> tensor<?x4x1x1xf32> {
  %y = pebble.image_network %x threads 1 predicted_us 1.0 depth_first <[<ops 0 to 1, bands 2, "">]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x1x1xf32> {
  ^bb0(%a : tensor<?x4x8x8xf32>):
    %b = pebble.activate <relu> %a : (tensor<?x4x8x8xf32>) -> tensor<?x4x8x8xf32>
    %c = pebble.pool2d "average" %b window <[8, 8] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x4x8x8xf32>) -> tensor<?x4x1x1xf32>
    pebble.yield %c : tensor<?x4x1x1xf32>
  }
  func.return %y : tensor<?x4x1x1xf32>
}
